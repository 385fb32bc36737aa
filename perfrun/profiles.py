"""Which profiles are asked for: the mini-languages of `--profile` and `--profiler_enabled_time`."""

from __future__ import annotations

import re

from perfrun.arguments import nearest
from perfrun.dataclass import dataclass
from perfrun.errors import UsageError

KINDS = ("cprofile", "torch", "tensorflow", "memory", "sampling")
_SECONDS = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ProfilerWindow:
    """Seconds after the method's start between which the framework's profiler records."""

    begin_s: int
    end_s: int


def parse_profiles(text: str | None) -> tuple[str, ...]:
    """Parse the comma list of kinds; one named twice counts once."""
    kinds = [item.strip() for item in (text or "").split(",") if item.strip()]
    for kind in kinds:
        if kind not in KINDS:
            near = nearest(kind, KINDS)
            hint = f"; did you mean {near}?" if near else ""
            raise UsageError(f"--profile: {kind!r} is not one of {', '.join(KINDS)}{hint}")
    return tuple(dict.fromkeys(kinds))


def parse_profiler_windows(text: str | None) -> tuple[ProfilerWindow, ...]:
    """Parse `begin:end,begin2:end2` (whole seconds, increasing); `:end` may be left out."""
    windows: list[ProfilerWindow] = []
    for item in [item.strip() for item in (text or "").split(",") if item.strip()]:
        begin, _, end = item.partition(":")
        if not all(_SECONDS.fullmatch(text) for text in (begin, end or "0")):
            raise UsageError(f"--profiler_enabled_time: {item!r} is not begin:end in whole seconds")
        # PerfZero's "until the method ends" is a year.
        window = ProfilerWindow(begin_s=int(begin), end_s=int(end) if end else 365 * 24 * 3600)
        if window.end_s <= window.begin_s or (windows and window.begin_s <= windows[-1].end_s):
            raise UsageError(f"--profiler_enabled_time: {text!r}: must increase and not overlap")
        windows.append(window)
    return tuple(windows)
