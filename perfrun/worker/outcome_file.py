"""The outcome file, by which the worker tells the harness how its trial went.

The file takes its blocks before the benchmark starts, so a full disk does not lose the outcome. It
stays open, so a folder that becomes read-only does not lose it, either. It is written as
`outcome.next` and renamed to `outcome.json`; where the rename fails, the harness reads the former.
"""

from __future__ import annotations

import contextlib
import json
import os

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

RESERVED_BYTES = 128 * 1024
OUTCOME = "outcome.json"
ASIDE = "outcome.next"
STACK = "stack.txt"  # where faulthandler writes
SERIES = "series_"  # begins the names of the files of `Benchmark.measure`
SERIES_VARIABLE = "PERFRUN_SERIES_DIR"  # set by the worker; children that measure inherit it
REQUEST = "companion_"  # begins the names of requests to the companion (perfrun.worker.companion)
FIRST_REQUEST = REQUEST + "1.json"
REMOVED = "the benchmark removed its output folder; the reports and logs in it are lost"


class OutcomeFile:
    """The open file of the outcome; `save` may be called at every phase."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._aside = os.path.join(folder, ASIDE)
        self._path = os.path.join(folder, OUTCOME)
        self._open()
        with contextlib.suppress(OSError):  # the disk may be full already; what fits is written
            os.pwrite(self._file, b" " * RESERVED_BYTES, 0)

    def _open(self) -> None:
        # A bare descriptor: a file object would close the number even if another file has it now.
        self._file = os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._identity = _identity(os.fstat(self._file))

    def save(self, outcome: Dict[str, Any]) -> None:
        """Write the outcome so far. Blanks after the JSON keep the reserved blocks."""
        data = _fitting(outcome)
        if not self._is_open():
            self._open()
        os.pwrite(self._file, data.ljust(RESERVED_BYTES), 0)
        os.ftruncate(self._file, max(len(data), RESERVED_BYTES))

    def finish(self, outcome: Dict[str, Any]) -> None:
        """Write the final outcome and give the file its name."""
        if self._was_removed():
            outcome["notes"].append(REMOVED)
            with contextlib.suppress(OSError):
                os.makedirs(self._folder, exist_ok=True)
                self._open()
        self.save(outcome)
        with contextlib.suppress(OSError):  # else the harness finds it under its first name
            os.replace(self._aside, self._path)

    def _is_open(self) -> bool:
        """Return False when the benchmark closed our descriptor, or another file has its number."""
        try:
            return _identity(os.fstat(self._file)) == self._identity
        except OSError:
            return False

    def _was_removed(self) -> bool:
        try:
            return _identity(os.stat(self._aside)) != self._identity
        except OSError:
            return True


def _identity(info: os.stat_result) -> Tuple[int, int]:
    return (info.st_dev, info.st_ino)


def _fitting(outcome: Dict[str, Any]) -> bytes:
    """Return the outcome as JSON, with its error cut so that all fits the reserved blocks."""
    limit = RESERVED_BYTES // 8
    while True:
        data = json.dumps(_trimmed(outcome, limit)).encode("ascii")
        # JSON takes one to twelve bytes a character, so the size is known only afterwards.
        if len(data) <= RESERVED_BYTES or limit < 1024:
            return data
        limit //= 2


def _trimmed(outcome: Dict[str, Any], limit: int) -> Dict[str, Any]:
    """Cut a very long message or traceback to about `limit` characters."""
    error = outcome.get("error")
    if not error:
        return outcome
    short = {
        key: value[:256] + "\n[...]\n" + value[-limit:]
        if isinstance(value, str) and len(value) > limit + 300
        else value
        for key, value in error.items()
    }
    return dict(outcome, error=short)


def write_json(path: str, value: Any) -> None:
    """Write JSON aside and rename it, so that no reader sees half a file."""
    aside = path + ".next"
    with open(aside, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(aside, path)
