"""Which launcher a plan asks for."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from perfrun.launchers.launcher import Launcher
from perfrun.launchers.local import LocalLauncher
from perfrun.options.plan import RunPlan


def make_launcher(plan: RunPlan, run_id: str, notify: Callable[[str], None]) -> Launcher:
    """Return what starts the workers of this plan. Raises UsageError when it cannot be had."""
    if plan.container is None:
        # What a trial leaves behind is ended with psutil. Its import can wait; that it is not
        # there must not be found out then, with a result to lose.
        if importlib.util.find_spec("psutil") is None:
            raise ModuleNotFoundError("No module named 'psutil'", name="psutil")
        return LocalLauncher(plan.python, dict(plan.env))
    # Loads the Docker SDK: only for who asks for a container.
    from perfrun.launchers.container_launcher import ContainerLauncher, folders_of

    binds = folders_of(plan.site_packages, plan.root_data_dir)
    return ContainerLauncher(plan.container, binds, run_id, notify, dict(plan.env))
