"""The choice of the launcher that a plan asks for."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from perfrun.errors import UsageError
from perfrun.launchers.launcher import Launcher
from perfrun.launchers.local import LocalLauncher
from perfrun.options.plan import RunPlan
from perfrun.trial_user import NoRightsError, TrialUser, trial_user, watch_as


def make_launcher(plan: RunPlan, run_id: str, notify: Callable[[str], None]) -> Launcher:
    """Return the launcher of this plan. Raises UsageError when there can be none."""
    if plan.container is None:
        # psutil ends what a trial leaves behind. It is imported only then, but its absence must
        # not cost the result of a trial.
        if importlib.util.find_spec("psutil") is None:
            raise ModuleNotFoundError("No module named 'psutil'", name="psutil")
        user = _user_of(plan, notify)
        watch_as(user)
        return LocalLauncher(plan.python, dict(plan.env), user)
    # Loads the Docker SDK, so only for containers.
    from perfrun.launchers.container_launcher import ContainerLauncher

    return ContainerLauncher(
        plan.container, plan.site_packages, plan.root_data_dir, run_id, notify, dict(plan.env)
    )


def _user_of(plan: RunPlan, notify: Callable[[str], None]) -> TrialUser | None:
    """Return the user of this plan's workers; None when that is perfrun's own.

    What worked for one user goes on to work: data that only its owner may read is read by its
    owner. No trial can bring that about, since none can change what is not its own.
    """
    try:
        user = trial_user()
    except NoRightsError as error:
        raise UsageError(str(error)) from None
    if user is None:
        return None
    from perfrun.launchers.passage import why_not  # in perfrun's images only

    needed = [plan.site_packages / item for item in plan.python_path]
    reason = why_not(user, plan.output, (Path(plan.python), Path(plan.root_data_dir), *needed))
    if reason is None:
        return user
    notify(
        f"the trials run as perfrun's own user, who can write all results: another user cannot "
        f"read {reason}; `chmod -R o+rX` it, or say that this is meant: PERFRUN_TRIAL_UID=same"
    )
    return None
