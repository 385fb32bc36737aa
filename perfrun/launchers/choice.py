"""Which launcher a plan asks for."""

from __future__ import annotations

from perfrun.launchers.contract import Launcher
from perfrun.launchers.local import LocalLauncher
from perfrun.plan import RunPlan


def make_launcher(plan: RunPlan) -> Launcher:
    """Return what starts the workers of this plan."""
    return LocalLauncher(plan.python)
