"""Follow the runs of a workspace by their journals, without touching them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfrun.locks import is_held
from perfrun.run.journal import parse_event
from perfrun.untrusted import Refused, opened

Key = tuple[str, int]  # method, trial id
RECENT_S = 2 * 86400.0  # a journal that was not written for so long is of no run that goes on
MOST_RUNS = 100  # that are followed: those whose journals were written last
_AT_ONCE = 2**20  # bytes of a journal that are read at one look
_LONGEST_LINE = 2**25


@dataclass(kw_only=True)
class FollowedRun:
    """A run, as far as its journal has been read."""

    path: Path
    offset: int = 0
    rest: bytes = b""  # the beginning of a line that is being written
    begun: float | None = None
    ended: bool = False
    planned: int = 0
    held: bool | None = None  # by its perfrun; None: the system does not tell
    now: dict[Key, str] = field(default_factory=dict)  # trials that were started, with the folder
    finished: set[Key] = field(default_factory=set)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.path.stem

    def document(self) -> dict[str, Any]:
        """Return the run's state as the server tells it."""
        running = not self.ended and self.held is not False
        return {
            "run_id": self.run_id,
            "state": "ended" if self.ended else "running" if running else "interrupted",
            "begun": self.begun,
            "planned": self.planned,
            "finished": len(self.finished),
            "now": [{"method": m, "trial_id": t} for m, t in self.now] if running else [],
        }

    def read(self) -> Iterator[dict[str, Any]]:
        """Read what is new of the journal; yield each trial that has begun or ended."""
        with contextlib.suppress(OSError, Refused), opened(self.path) as (number, size):
            if size < self.offset:  # another file under its name
                vars(self).update(vars(FollowedRun(path=self.path)))
            data = os.pread(number, _AT_ONCE, self.offset)
            self.offset += len(data)
            *lines, self.rest = (self.rest + data).split(b"\n")
            if len(self.rest) > _LONGEST_LINE:
                self.rest = b""
            for line in lines:
                event = parse_event(line)
                yield from () if event is None else self._take(event)
        self.held = is_held(self.path)

    def _take(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        kind = event["event"]
        key: Key = (event.get("method", ""), event.get("trial_id", 0))
        self.ended = kind == "end"
        if kind == "begin":
            self.begun = event.get("begun")
        elif kind == "round":
            self.planned += len(event["steps"])
        elif kind == "started":
            self.now[key] = Path(event["folder"]).name
            yield self._trial(key, "started", self.now[key])
        elif kind == "finished":
            folder = self.now.pop(key, "")
            self.finished.add(key)
            yield self._trial(key, "finished", folder or Path(event["summary"]).parent.name)

    def _trial(self, key: Key, state: str, folder: str) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "method": key[0],
            "trial_id": key[1],
            "state": state,
            "execution_id": folder,
        }


class Journals:
    """The journals of a workspace that were written lately."""

    def __init__(self, runs: Path) -> None:
        self._folder = runs
        self._followed: dict[str, FollowedRun] = {}
        self._told: dict[str, dict[str, Any]] = {}  # the state that was told last, by run id

    def states(self) -> list[dict[str, Any]]:
        """Return the states of the runs that go on, and of those that ended since the start."""
        return list(self._told.values())

    def look(self, *, is_first: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
        """Read all that is new; yield `run` and `trial` with what there is to tell.

        At the first look, nothing is told of runs that have ended.
        """
        for name in self._recent():
            run = self._followed.setdefault(name, FollowedRun(path=self._folder / name))
            if run.ended and run.run_id not in self._told and run.offset and not _grew(run):
                continue
            for trial in run.read():
                if not is_first:
                    yield "trial", trial
            state = run.document()
            is_news = state != self._told.get(run.run_id)
            if is_news and (not is_first or state["state"] == "running"):
                self._told[run.run_id] = state
                yield "run", state

    def _recent(self) -> list[str]:
        """Return the names of the journals, those that were written last at the end."""
        since = time.time() - RECENT_S
        found = []
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(OSError):
                        found.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
        recent = sorted(one for one in found if one[0] >= since)[-MOST_RUNS:]
        names = [name for _, name in recent]
        for gone in self._followed.keys() - set(names):
            del self._followed[gone]
            self._told.pop(Path(gone).stem, None)
        return names


def _grew(run: FollowedRun) -> bool:
    try:
        return run.path.lstat().st_size != run.offset
    except OSError:
        return False
