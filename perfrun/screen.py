"""What a run, and whoever makes runs, needs of what shows them; `reports.terminal` is one."""

from __future__ import annotations

from typing import Protocol

from perfrun.document import TrialResult


class Screen(Protocol):
    """What a run shows while it goes on."""

    def prepare(self) -> None:
        """Load what showing needs, while there is time."""

    def note(self, text: str) -> None:
        """One line about what happens."""

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        """A trial begins."""

    def stdout(self, text: str) -> None:
        """The benchmark printed something."""

    def stderr(self, text: str) -> None:
        """The benchmark printed something to its standard error."""

    def trial_finished(self, result: TrialResult) -> None:
        """A trial has ended, and its summary is on disk."""

    def profile_started(self, method: str, kind: str) -> None:
        """An extra trial under a profiler begins."""

    def profile_finished(self, result: TrialResult) -> None:
        """An extra trial under a profiler has ended."""
