"""The form of an answer about this machine: what was looked for, and whether it is there."""

from __future__ import annotations

from enum import Enum

from perfrun.dataclass import dataclass


class Presence(str, Enum):
    """Whether what a benchmark wants is there."""

    FOUND = "found"
    MISSING = "missing"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        """As a person reads it."""
        return "cannot tell" if self is Presence.UNKNOWN else self.value


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of `perfrun doctor`."""

    name: str  # stable; a key for programs
    wanted: str  # what a benchmark wants, in a few words: "governor performance"
    presence: Presence
    value: str | None = None  # what there is, in words; None when nothing is known
    why: str = ""  # why it matters to a benchmark
    mend: str | None = None  # the command that mends it; None where there is none


def presence(answer: bool | None) -> Presence:
    """Found, missing, or cannot tell."""
    if answer is None:
        return Presence.UNKNOWN
    return Presence.FOUND if answer else Presence.MISSING
