"""The journal of a run: which trials were started and which are finished, for `--resume`.

It is `<workspace>/runs/<run_id>.jsonl`. The first line describes the run; each event appends one
line. A line that a crash has cut off is ignored, and so is one with a wrong value. It lies where
the container of a trial cannot write, so it also tells which summaries are perfrun's own: it has
the SHA-256 of each, from before the summary was written.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from perfrun.dataclass import asdict, dataclass, field
from perfrun.durable import make_folder, sync_file, sync_names
from perfrun.errors import WorkspaceError
from perfrun.locks import FileLock
from perfrun.options.plan import RunPlan
from perfrun.run.digest import sha256_of
from perfrun.run.schedule import Step
from perfrun.summary.result_folder import ResultFolder
from perfrun.text import redact
from perfrun.untrusted import Folder, Refused, opened

Key = tuple[str, int]  # method, trial id
Fields = Mapping[str, Callable[[object], bool]]  # of an event, each with a check of its value
LARGEST_BYTES = 64 * 2**20  # of a summary, as for every reader of summaries
_LARGEST_JOURNAL = 2**30  # bytes; 100,000 trials take a tenth of it
_LATEST_S = 9e10
_LONGEST_PATH, _LONGEST_NAME = 4095, 255  # bytes


@dataclass(frozen=True, kw_only=True)
class UnfinishedRun:
    """The state of an unfinished run, as its journal tells it."""

    run_id: str
    path: Path
    pinned: Mapping[str, str] = field(default_factory=dict)  # checkout -> commit
    started: Mapping[Key, Path] = field(default_factory=dict)  # -> folder
    finished: Mapping[Key, Path] = field(default_factory=dict)  # -> summary file
    # SHA-256 of each summary that it was about to write; None: an older perfrun kept none.
    written: Mapping[Key, frozenset[str]] | None = None
    seed: int | None = None  # of the order of trials; None when the journal has none
    rounds: tuple[tuple[Step, ...], ...] = ()  # as they were planned

    def knows(self, key: Key, sha256: str) -> bool:
        """Return True when the run wrote a summary with this digest as that of the trial.

        Of a run of an older perfrun, only what it recorded as finished is believed.
        """
        if self.written is None:
            return key in self.finished
        return sha256 in self.written.get(key, ())


def fingerprint(plan: RunPlan) -> str:
    """Return the hash of what is asked for: two calls with the same one may share results."""
    rules = plan.repetition
    asked = {
        "selectors": [selector.text for selector in plan.selectors],
        "trials": plan.num_trials,
        # Without the time budget: a run that ran out of time may go on with more.
        "repetition": [rules.precision, rules.max_trials, rules.max_reruns, rules.seed],
        "repos": [[repo.url, repo.branch, repo.git_hash] for repo in plan.repos],
        "python_path": plan.python_path,
        "python": plan.python,
        "container": asdict(plan.container) if plan.container else None,
        "root_data_dir": plan.root_data_dir,
        "data": [[item.url, item.relative_path, item.sha256] for item in plan.data],
        "labels": [
            plan.execution_label,
            plan.ml_framework_build_label,
            plan.platform_name,
            plan.system_name,
        ],
        "constructor_args": plan.constructor_args,
        "env": plan.env,
        "class_type": plan.class_type,
        "benchmark_flags": plan.benchmark_flags,
        "profiler_windows": [[w.begin_s, w.end_s] for w in plan.profiler_windows],
    }
    if plan.profiles:  # only then, so that journals of an older perfrun still match
        asked["profiles"] = plan.profiles
    if plan.profile_scope != "timed":
        asked["profile_scope"] = plan.profile_scope
    if plan.allocator != "default":
        asked["allocator"] = plan.allocator
    return sha256_of(json.dumps(asked, sort_keys=True).encode())


def used(plan: RunPlan, image_id: str | None = None) -> list[tuple[str, str]]:
    """Return what a plan takes code and data from, without secrets, each with its digest."""
    contained = plan.container
    found = [f"--python={plan.python}"] if plan.python else []
    if contained:
        found += [f"--image={name}" for name in (contained.image, image_id) if name]
        found += [f"--image_python={contained.python}"] if contained.python else []
        found.append(f"--trial_network={contained.network}")
    found += [f"the repository {repo.shown_url}" for repo in plan.repos]
    found += [f"--python_path={item}" for item in plan.python_path]
    found += [f"the data {redact(item.url)}" for item in plan.data]
    found.append(f"--root_data_dir={plan.root_data_dir}")
    found += [redact(f"--env={name}={value}") for name, value in plan.env]
    return [(one, sha256_of(one.encode("utf-8", "surrogatepass"))) for one in found]


class Journal:
    """Appends events. When it cannot be written, `--resume` suffers, but the run goes on."""

    def __init__(self, path: Path, notify: Callable[[str], None] | None = None) -> None:
        self.path = path
        self.broken: str | None = None
        self._notify = notify
        self._unsynced: list[Path] = []  # folders with new names in them

    def begin(
        self, plan: RunPlan, pinned: Mapping[str, str], seed: int, image_id: str | None = None
    ) -> None:
        """Write the first line."""
        with contextlib.suppress(OSError):
            self._unsynced = [*make_folder(self.path.parent), self.path.parent]
        self._append(
            {
                "event": "begin",
                "begun": time.time(),
                "fingerprint": fingerprint(plan),
                "pinned": dict(pinned),
                "seed": seed,
                "used": [digest for _, digest in used(plan, image_id)],
            }
        )

    def planned(self, steps: Sequence[Step]) -> None:
        """Record that a round begins, with these trials in this order."""
        self._append({"event": "round", "steps": [asdict(step) for step in steps]})

    def started(self, key: Key, folder: Path) -> None:
        """Record that a trial's folder exists."""
        self._append(
            {
                "event": "started",
                "method": key[0],
                "trial_id": key[1],
                "folder": str(folder),
            }
        )

    def written(self, key: Key, text: str) -> None:
        """Record what is about to be written as a trial's summary: a later reader knows it by that.

        It comes first, so that no kill can leave a summary of perfrun's that nobody knows.
        """
        digest = sha256_of(text.encode("utf-8", "surrogatepass"))
        self._append({"event": "written", "method": key[0], "trial_id": key[1], "sha256": digest})

    def finished(self, key: Key, summary: Path) -> None:
        """Record that a trial's summary is on disk: the trial need not run again.

        The line itself survives a power loss, and so do all lines before it.
        """
        self._append(
            {"event": "finished", "method": key[0], "trial_id": key[1], "summary": str(summary)},
            sync=True,
        )

    def rewritten(self, key: Key, text: str) -> None:
        """Record what is about to take the place of a finished trial's summary, for good."""
        self.written(key, text)
        self.settle()

    def settle(self) -> None:
        """Make all events so far survive a power loss. It waits for the disk."""
        self._append(None, sync=True)

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Lock the run against every other `--resume`; False when another perfrun has locked it."""
        with _locked(self.path) as free:
            yield free

    def remove_unfinished(self) -> None:
        """Remove what a killed perfrun had begun to write for this run. Call it with the lock."""
        for folder in folders_of(self.path):
            ResultFolder(folder).remove_unfinished()
        with contextlib.suppress(OSError), Folder(self.path.parent) as runs:
            runs.remove_unfinished(self.report.name)

    @property
    def report(self) -> Path:
        """The file of the run's report."""
        return self.path.with_suffix(".report.json")

    def end(self) -> None:
        """Record that all trials are finished: there is nothing to resume."""
        self._append({"event": "end"})

    def _append(self, event: Mapping[str, Any] | None, *, sync: bool = False) -> None:
        try:
            with self.path.open("ab+") as file:
                if event is not None:
                    file.write(_end_of_a_cut_line(file) + json.dumps(event).encode() + b"\n")
                    file.flush()
                if sync:
                    sync_file(file.fileno())
        except OSError as error:
            if self._notify and self.broken is None:  # once: the next event fails, too
                self._notify(f"--resume will not know all of this run: {error}")
            self.broken = str(error)
        if sync:
            for folder in self._unsynced:
                sync_names(folder)
            self._unsynced = []


def _end_of_a_cut_line(file: BinaryIO) -> bytes:
    """Return what ends a line that a crash has cut off: the next event would be lost with it."""
    try:
        if file.tell():
            file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) in (b"", b"\n") else b"\n"
    except OSError:
        return b"\n"  # an empty line is no event


def unfinished(runs: Path, plan: RunPlan) -> UnfinishedRun | None:
    """Return the newest run of the same fingerprint that has not ended and does not run now."""
    for path in _newest_first(runs, plan):
        events = _events(path)
        if not events:
            continue  # removed meanwhile
        if events[-1]["event"] == "end":
            return None  # the newest one is complete: a new run is asked for
        with _locked(path) as free:
            if free:
                return _unfinished_run(path, events)
    return None


def complete(runs: Path, plan: RunPlan) -> Path | None:
    """Return the report of the newest run of the same fingerprint; None unless that run ended."""
    for path in _newest_first(runs, plan):
        if events := _events(path):
            return path.with_suffix(".report.json") if events[-1]["event"] == "end" else None
    return None


def begun_at(name: str, first: Mapping[str, Any], begun_by: Callable[[], float]) -> float:
    """Return when a run or a search began, in seconds since the epoch.

    Its `first` event says so. A run of an older perfrun has only its name, which begins with the
    local time. In the hour that comes twice when summer time ends, that may mean two times: the
    later one is taken unless it is after `begun_by`, a time at which it had certainly begun.
    """
    begun = first.get("begun")
    if isinstance(begun, (int, float)):
        return float(begun)
    try:
        local = datetime.strptime(name[:15], "%Y%m%d-%H%M%S")
    except ValueError:
        return begun_by()
    first_time, second_time = (local.replace(fold=fold).timestamp() for fold in (0, 1))
    if second_time <= first_time:
        return first_time
    return second_time if second_time <= begun_by() else first_time


def _newest_first(runs: Path, plan: RunPlan) -> list[Path]:
    """Return the journals with the plan's fingerprint, the newest first.

    Their names give no order: they are in local time, which goes back when summer time ends.
    """
    wanted = fingerprint(plan)
    found = []
    for path in runs.glob("*.jsonl"):
        first = _beginning(path)
        if first.get("fingerprint") == wanted:
            found.append((begun_at(path.stem, first, partial(_begun_by, path)), path))
    return [path for _, path in sorted(found, reverse=True)]


def _begun_by(path: Path) -> float:
    """Return a time at which the run had certainly begun: that of its oldest known file."""
    files = [path]
    for folder in folders_of(path)[:1]:
        with contextlib.suppress(OSError):
            files += (folder / "perfrun").iterdir()
    times = []
    for file in files:
        with contextlib.suppress(OSError):
            times.append(file.stat().st_mtime)
    return min(times, default=0.0)


def going_on(runs: Path) -> set[str]:
    """Return the ids of the runs that have not ended: they run now, or can be resumed."""
    return {
        path.stem
        for path in runs.glob("*.jsonl")
        if (events := _events(path)) and events[-1]["event"] != "end"
    }


def own_summaries(journal: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return what tells a run's own summaries: their SHA-256, and the names of their folders.

    The names are of an older perfrun's run, whose journal has no SHA-256; else there are none.
    """
    digests: set[str] = set()
    folders: set[str] = set()
    keeps_digests = False
    for event in _each_event(journal):
        if event["event"] == "begin":
            keeps_digests = "used" in event
        elif event["event"] == "written":
            digests.add(str(event.get("sha256")))
        elif event["event"] == "finished":
            folders.add(Path(str(event.get("summary"))).parent.name)
    return frozenset(digests), frozenset() if keeps_digests or digests else frozenset(folders)


def used_by_runs(runs: Path) -> frozenset[str]:
    """Return the digests of what the runs of a workspace have taken code and data from."""
    found: set[str] = set()
    for path in runs.glob("*.jsonl"):
        digests = _beginning(path).get("used")
        found.update(one for one in digests or () if isinstance(one, str))
    return frozenset(found)


def folders_of(journal: Path) -> list[Path]:
    """Return the folders of all trials that a run has started."""
    return [Path(event["folder"]) for event in _events(journal) if event["event"] == "started"]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold a journal's lock; False when another process holds it.

    A journal that cannot be opened or locked counts as free.
    """
    with contextlib.ExitStack() as stack:
        free = True
        with contextlib.suppress(WorkspaceError):
            free = stack.enter_context(FileLock(path)).try_own()
        yield free


def _events(path: Path) -> list[dict[str, Any]]:
    return list(_each_event(path))


def _beginning(path: Path) -> Mapping[str, Any]:
    """Return the first event, which says what was run; an empty one where that is damaged."""
    first = next(_each_event(path), {})
    return first if first.get("event") == "begin" else {}


def _each_event(path: Path) -> Iterator[dict[str, Any]]:
    with (
        contextlib.suppress(OSError, Refused),
        opened(path) as (number, size),
        open(number, "rb", closefd=False) as file,
    ):
        # A folder of a stranger's may hold anything under this name.
        for line in file if size <= _LARGEST_JOURNAL else ():
            if (event := parse_event(line)) is not None:
                yield event


def parse_event(line: bytes) -> dict[str, Any] | None:
    """Return the event of a journal's line; None where it is none or has a wrong value."""
    with contextlib.suppress(ValueError, RecursionError):
        event = json.loads(line)
        if is_event(event, _FIELDS):
            return dict(event)
    return None


def is_event(said: object, fields: Mapping[str, Fields]) -> bool:
    """Return True for an event without a wrong value; `fields` has those of each known kind."""
    if not isinstance(said, dict) or not isinstance(said.get("event"), str):
        return False
    known = fields.get(said["event"], {})
    return all(is_right(said.get(name)) for name, is_right in known.items())


def is_text(value: object) -> bool:
    """Return True for a text."""
    return isinstance(value, str)


def is_count(value: object) -> bool:
    """Return True for a whole number that is not negative, and no bool."""
    return type(value) is int and 0 <= value < 2**53


def is_amount(value: object) -> bool:
    """Return True for seconds, also since the epoch, and for None."""
    return value is None or (type(value) in (int, float) and 0 <= value < _LATEST_S)  # type: ignore[operator]


def _is_path(value: object) -> bool:
    """Return True for a path that the system can be asked for."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        whole = os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return len(whole) <= _LONGEST_PATH and max(map(len, whole.split(b"/"))) <= _LONGEST_NAME


def is_seed(value: object) -> bool:
    """Return True for the seed of an order: any whole number."""
    return type(value) is int


def are_texts(value: object) -> bool:
    """Return True for a list of texts, and for None."""
    return value is None or (isinstance(value, list) and all(map(is_text, value)))


def _are_commits(value: object) -> bool:
    return value is None or (isinstance(value, dict) and all(map(is_text, value.values())))


def _are_steps(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(step, dict)
        and is_text(step.get("method"))
        and is_count(step.get("trial_id"))
        and is_count(step.get("round"))
        and (step.get("rerun_of") is None or is_count(step["rerun_of"]))
        for step in value
    )


_KEY: Fields = {"method": is_text, "trial_id": is_count}
_FIELDS: Mapping[str, Fields] = {
    "begin": {
        "begun": is_amount,
        "pinned": _are_commits,
        "seed": lambda value: value is None or is_seed(value),
        "used": are_texts,
    },
    "round": {"steps": _are_steps},
    "started": {**_KEY, "folder": _is_path},
    "written": {**_KEY, "sha256": is_text},
    "finished": {**_KEY, "summary": _is_path},
}


def _unfinished_run(path: Path, events: list[dict[str, Any]]) -> UnfinishedRun:
    started: dict[Key, Path] = {}
    finished: dict[Key, Path] = {}
    written: dict[Key, set[str]] = {}
    rounds: list[tuple[Step, ...]] = []
    keeps_digests = "used" in events[0]
    for event in events[1:]:
        key = (event.get("method", ""), event.get("trial_id", 0))
        if event["event"] == "started":
            started[key] = Path(event["folder"])
        elif event["event"] == "finished":
            finished[key] = Path(event["summary"])
        elif event["event"] == "written":
            written.setdefault(key, set()).add(event["sha256"])
        elif event["event"] == "round":
            rounds.append(tuple(map(_step, event["steps"])))
    return UnfinishedRun(
        run_id=path.stem,
        path=path,
        pinned=events[0].get("pinned") or {},
        started=started,
        finished=finished,
        written={key: frozenset(own) for key, own in written.items()} if keeps_digests else None,
        seed=events[0].get("seed"),
        rounds=tuple(rounds),
    )


def _step(said: Mapping[str, Any]) -> Step:
    return Step(
        method=said["method"],
        trial_id=said["trial_id"],
        round=said["round"],
        rerun_of=said.get("rerun_of"),
    )
