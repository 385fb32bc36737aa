"""The allocator of a trial: what was asked for, what the worker found, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfrun.summary.finding import Finding, Severity
from perfrun.summary.series_identity import DEFAULT_ALLOCATORS, section, text

_LONGEST = 500  # characters of a value; a worker may say anything
_MOST_SETTINGS = 20


def trial_allocator(found: Any, asked: str) -> dict[str, Any]:
    """Return `perfrun.allocator` of a summary, from what the worker says of itself."""
    found = found if isinstance(found, dict) else {}
    settings = section(found, "settings")
    return {
        "asked": asked,
        "name": _text(found.get("name")),
        "library": _text(found.get("library")),
        "libc": _text(found.get("libc")),
        "settings": {
            text(name)[:_LONGEST]: text(settings[name])[:_LONGEST]
            for name in sorted(settings, key=str)[:_MOST_SETTINGS]
        },
    }


def _text(value: Any) -> str | None:
    return text(value)[:_LONGEST] if isinstance(value, str) and value else None


def allocator_findings(allocator: Mapping[str, Any]) -> Iterator[Finding]:
    """Find that a trial did not have the allocator that was asked for."""
    asked, name = text(allocator.get("asked")), text(allocator.get("name"))
    wanted = "glibc" if asked == "retain" else asked
    if asked in ("", "default") or name in ("", wanted):
        return
    whose = "the C library's" if name in DEFAULT_ALLOCATORS else f"that of {name}"
    yield Finding(
        code="allocator_not_used",
        severity=Severity.WARNING,
        text=f"--allocator={asked} had no effect in this trial: malloc was {whose}",
        mend="look for a program that clears LD_PRELOAD before the benchmark starts",
    )
