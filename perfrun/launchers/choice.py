"""Which launcher a plan asks for."""

from __future__ import annotations

from collections.abc import Callable

from perfrun.launchers.contract import Launcher
from perfrun.launchers.local import LocalLauncher
from perfrun.plan import RunPlan


def make_launcher(plan: RunPlan, run_id: str, notify: Callable[[str], None]) -> Launcher:
    """Return what starts the workers of this plan. Raises UsageError when it cannot be had."""
    if plan.container is None:
        return LocalLauncher(plan.python, dict(plan.env))
    # Loads the Docker SDK: only for who asks for a container.
    from perfrun.launchers.containers import ContainerLauncher, folders_of

    binds = folders_of(plan.site_packages, plan.root_data_dir)
    return ContainerLauncher(plan.container, binds, run_id, notify, dict(plan.env))
