"""The choice of the launcher that a plan asks for."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from perfrun.launchers.launcher import Launcher
from perfrun.launchers.local import LocalLauncher
from perfrun.options.plan import RunPlan


def make_launcher(plan: RunPlan, run_id: str, notify: Callable[[str], None]) -> Launcher:
    """Return the launcher of this plan. Raises UsageError when there can be none."""
    if plan.container is None:
        # psutil ends what a trial leaves behind. It is imported only then, but its absence must
        # not cost the result of a trial.
        if importlib.util.find_spec("psutil") is None:
            raise ModuleNotFoundError("No module named 'psutil'", name="psutil")
        return LocalLauncher(plan.python, dict(plan.env))
    # Loads the Docker SDK, so only for containers.
    from perfrun.launchers.container_launcher import ContainerLauncher

    return ContainerLauncher(
        plan.container, plan.site_packages, plan.root_data_dir, run_id, notify, dict(plan.env)
    )
