"""A place where revisions are run in turns: one prepared run at a time, trials one by one."""

from __future__ import annotations

import contextlib
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from perfrun.document import TrialResult
from perfrun.errors import UsageError
from perfrun.interruption import Interruption
from perfrun.pairing import SideScreen
from perfrun.plan import RunPlan
from perfrun.rounds import Rounds
from perfrun.runner import prepare
from perfrun.screen import Screen

_MANY = 1_000_000  # trials of a run of which nobody knows how many it will have
# What several seats of a workspace share with it: a commit is fetched once.
_SHARED = ("git-cache", ".locks/git-cache")


class Seat:
    """Runs trials of a revision in a workspace of its own; a change of revision is a new run.

    Two seats side by side have both checkouts of a pair in place at once.
    """

    def __init__(
        self, workspace: Path, name: str, screen: Screen, interruption: Interruption, seed: int
    ) -> None:
        self._workspace = workspace / name
        self._screen = SideScreen(name, screen)
        self._interruption, self._seed = interruption, seed
        self._plan: RunPlan | None = None
        self._rounds: Rounds | None = None
        self._stack = ExitStack()
        self._number = 0

    def trial(self, plan: RunPlan) -> TrialResult | None:
        """Run one trial of the plan's only method; None when interrupted.

        Raises PerfrunError for what keeps the plan from being run at all.
        """
        if self._rounds is None or plan is not self._plan:
            self.leave()
            self._rounds = self._enter(plan)
            self._plan, self._number = plan, 0
        self._number += 1
        return self._rounds.run_one(self._rounds.methods[0], self._number)

    def leave(self, *, ended: bool = True) -> None:
        """Give back what the revision holds: locks, containers."""
        rounds, self._rounds = self._rounds, None
        if rounds is not None:
            rounds.finish(ended=ended)
        self._stack.close()

    def _enter(self, plan: RunPlan) -> Rounds:
        self._link()
        own = replace(plan, workspace=self._workspace, num_trials=_MANY, resume=False)
        for repo in own.repos:
            _without_bytecode(own.site_packages / repo.directory)
        with self._interruption.allowed(), ExitStack() as stack:
            rounds = prepare(own, self._screen, self._interruption, stack, self._seed)
            if len(rounds.methods) != 1:
                raise UsageError(
                    "--benchmark_methods: one method is searched for at a time, not "
                    + (", ".join(rounds.methods) or "none")
                )
            self._stack = stack.pop_all()
        return rounds

    def _link(self) -> None:
        """Share the cache of commits with the workspace around."""
        for name in _SHARED:
            target = self._workspace.parents[2] / name
            target.mkdir(parents=True, exist_ok=True)
            link = self._workspace / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink() and not link.exists():
                link.symlink_to(target)


def _without_bytecode(checkout: Path) -> None:
    """Remove compiled modules: Python would take those of another commit that has the same size
    and was written in the same second for up to date.
    """
    for folder in checkout.rglob("__pycache__"):
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
