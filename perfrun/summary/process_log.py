"""Read `process_info.log` of a trial: what was watched of its processes over time.

A trial can write there: no link is followed, the file and its lines have limits, and only finite
numbers count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfrun.summary.series_identity import is_number
from perfrun.untrusted import Folder, Refused

NAME = "process_info.log"
_LARGEST_BYTES = 64 * 2**20
_LONGEST_LINE = 2**16
_LEAST, _LARGEST = 1e-18, 1e18  # what is beyond is no figure of a process, and no axis has it
Reading = Mapping[str, float]


def readings(summary: Path, about: int | None = None) -> Sequence[Reading]:
    """Return the readings beside a summary, in the order of time; none where there is no log.

    Of many, every n-th one, so that there are at least `about` of them and less than twice as many.
    """
    if not summary.name:
        return []
    try:
        with Folder(summary.parent) as folder:
            lines = folder.read(NAME, _LARGEST_BYTES).split(b"\n")
    except (OSError, Refused):
        return []
    found: list[Reading] = []
    last = 0.0
    for line in lines[:: max(1, len(lines) // about) if about else 1]:
        one = _reading(line)
        if one is not None and one["time"] >= last:
            last = one["time"]
            found.append(one)
    return found


def _reading(line: bytes) -> Reading | None:
    try:
        said = json.loads(line) if len(line) <= _LONGEST_LINE else None
    except (ValueError, RecursionError):  # the last line, if perfrun was killed
        return None
    if not isinstance(said, dict):
        return None
    known = {name: float(value) for name, value in said.items() if _is_size(value)}
    return known if "time" in known else None


def _is_size(value: object) -> bool:
    return is_number(value) and (value == 0 or _LEAST <= value < _LARGEST)
