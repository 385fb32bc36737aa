"""What runs of this workspace have written and used; every other summary is imported.

A summary can say anything about itself. That a run wrote it is known from the run's journal, which
has the SHA-256 of each summary and lies where the container of a trial cannot write. A local trial
runs as the user and can write there, too: what it says is believed as the user's own word.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from perfrun.options.plan import RunPlan
from perfrun.run.digest import sha256_of
from perfrun.run.journal import own_summaries, used, used_by_runs

_RUN_ID = re.compile(r"[\w-][\w.-]{0,199}", re.ASCII)


class OwnResults:
    """The summaries that runs of a workspace wrote, told from imported ones.

    The journal of a run is read once, and only when a summary says that it is of that run.
    """

    def __init__(self, workspace: Path) -> None:
        self._runs, self._output = workspace / "runs", workspace / "output"
        self._written: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def has(self, run_id: str, path: Path, content: bytes) -> bool:
        """Return True when that run, of this workspace, wrote a summary of just these bytes.

        An older perfrun kept no SHA-256 of them. Of its runs, a summary counts that lies where the
        journal says a trial was finished: in this workspace, where only its owner puts files.
        """
        if not _RUN_ID.fullmatch(run_id):
            return False
        if run_id not in self._written:
            self._written[run_id] = own_summaries(self._runs / f"{run_id}.jsonl")
        digests, folders = self._written[run_id]
        name = path.parent.name
        is_there = name in folders and path.resolve() == self._output.resolve() / name / path.name
        return sha256_of(content) in digests or is_there

    def unused(self, plan: RunPlan) -> str | None:
        """Return what a plan takes code or data from and no run of this workspace has; else None.

        It is named as it may be shown.
        """
        return next((named for named, digest in used(plan) if digest not in self._used), None)

    @cached_property
    def _used(self) -> frozenset[str]:
        return used_by_runs(self._runs)
