"""Count the arithmetic behind the reports of a trial that has ended, in a process of its own.

What a companion has found is kept in `<workspace>/companion/`: the work of a model for the same
code, environment and arguments; the peak of a device for the same boot, machine and settings, too.
Requests, answers and what is kept come from processes that ran foreign code: they are checked as
such. Whatever fails leaves the figures out, with the reason in the report's extra `mfu_absent`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfrun.dataclass import asdict, dataclass
from perfrun.errors import Interrupted, UsageError
from perfrun.launchers.launcher import Launcher
from perfrun.run.digest import sha256_of
from perfrun.run.environment import TIMEOUT_S, Paths, Service
from perfrun.run.interruption import Interruption
from perfrun.summary.arithmetic import (
    Peak,
    Work,
    achieved,
    figures,
    is_positive,
    peak_of,
    with_figures,
    work_of,
)
from perfrun.summary.assemble import RunFacts
from perfrun.summary.document import Report
from perfrun.summary.result_folder import write_whole
from perfrun.untrusted import Folder, Refused, parse_json, read_file
from perfrun.worker.companion import MOST_BYTES, MOST_REQUESTS
from perfrun.worker.outcome_file import REQUEST

FOLDER = "companion"  # in the workspace
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_KEYS = {"report", "module", "function", "arguments", "place", "rate"}
_MOST_ANSWER = 4 * 1024 * 1024  # bytes; most of them are names of files
_MOST_FILES = 20_000
_LEAST_S = 60.0  # that a companion has, where a trial has less: it imports the framework, too
_HASHED = 4 * 1024 * 1024  # of a larger file the size and the time of its change count
_HASHED_IN_ALL = 256 * 1024 * 1024
_SEARCHES = 3  # in runs beside other load; then the highest peak is kept, for that load stays
_TOO_LOW = 1.05  # times a kept peak: a model that did so much more shows that it is none
# Variables by which libraries choose their kernels and threads.
_DECIDING = re.compile(
    r"(OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|DNNL|ONEDNN|ATEN|TORCH|PYTORCH|TF|XLA|JAX|KERAS|CUDA|CUDNN"
    r"|NVIDIA|HIP|ROCR|MALLOC|LD|GLIBC)_\w+"
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request of a trial, checked."""

    report: str
    module: str
    function: str
    arguments: Mapping[str, Any]
    place: Mapping[str, Any]
    rate: float | None  # examples per second and device


@dataclass(frozen=True, kw_only=True)
class Companion:
    """Answers the requests of the trials of a run.

    `asked` has what was asked in this run, by its key, with the reason where it failed: that is
    not tried again for every trial. `disturbed`: other load may have lowered a peak that is
    measured now, so that a later run measures it again.
    """

    run: RunFacts
    launcher: Launcher
    paths: Paths
    interruption: Interruption
    asked: dict[str, str]
    disturbed: bool

    def completed(
        self, reports: Sequence[Report], private: Path
    ) -> tuple[tuple[Report, ...], tuple[str, ...]]:
        """Return the reports with the figures that were asked for, and notes on bad requests."""
        requests, notes = read_requests(private)
        whole = list(reports)
        answered: set[int] = set()
        for request in requests:
            places = [at for at, one in enumerate(whole) if one.name == request.report]
            at = next((place for place in places if place not in answered), None)
            if at is None:
                notes.append(f"the companion was asked for a report {request.report!r} that is not")
                continue
            answered.add(at)
            work, peak = self._answer(request)
            whole[at] = with_figures(whole[at], *figures(work, peak, request.rate))
        return tuple(whole), tuple(notes)

    def _answer(self, request: Request) -> tuple[Work, Peak]:
        """Return work and peak, kept or found now."""
        keys = {"work": self._key(request, "work"), "peak": self._key(request, "peak")}
        kept = {name: self._kept(name, key) for name, key in keys.items()}
        work = work_of(kept["work"]["figures"]) if kept["work"] else None
        peak = peak_of(kept["peak"]["figures"]) if kept["peak"] else None
        wanted = [name for name, entry in kept.items() if entry is None]
        if peak and self._is_doubtful(peak, kept["peak"] or {}, keys["peak"], work, request.rate):
            wanted.append("peak")
        # The same request in the same run failed before: so it would again.
        known = next((self.asked[keys[name]] for name in wanted if keys[name] in self.asked), "")
        if wanted and not known:
            try:
                found, files = self._asked(request, wanted, work)
            except (_CompanionError, Interrupted, UsageError) as error:
                known = f"the companion process failed: {error}"
                if not isinstance(error, Interrupted):
                    self.asked.update({keys[name]: known for name in wanted})
            else:
                work = found.get("work", work)
                done = None if work is None else achieved(work, request.rate)
                peak = _higher(found.get("peak"), peak)
                searches = _searches(kept["peak"]) + (keys["peak"] not in self.asked)
                self._keep(keys, {"work": work, "peak": peak}, wanted, files, done, searches)
                known = ""
        return work or Work(why_unknown=known), peak or Peak(why_unknown=known)

    def _is_doubtful(
        self, peak: Peak, entry: Mapping[str, Any], key: str, work: Work | None, rate: float | None
    ) -> bool:
        """Return True for a kept peak that another search may raise.

        It was measured beside other load, in few earlier runs; or it is below what the model did,
        of which its search knew less.
        """
        is_disturbed = entry.get("disturbed") is not False
        if is_disturbed and key not in self.asked and _searches(entry) < _SEARCHES:
            return True
        done = None if work is None else achieved(work, rate)
        if done is None or peak.flops_per_second is None or done <= peak.flops_per_second:
            return False
        told = entry.get("done")
        known = float(told) if isinstance(told, int | float) and is_positive(told) else 0.0
        return done > _TOO_LOW * known

    def _asked(
        self, request: Request, wanted: Sequence[str], work: Work | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Start the process; return its figures by name, and the files that it loaded."""
        order = {
            "action": "companion",
            "module": request.module,
            "function": request.function,
            "arguments": dict(request.arguments),
            "wanted": list(wanted),
            "work": None if work is None else {"flops_per_example": work.flops_per_example},
            "rate": request.rate,
        }
        # A signal that came in the trial ends the run: no process is started any more.
        if self.interruption.asked:
            raise _CompanionError("the run was interrupted before")
        asked = self.run.plan.timeout_s
        limit_s = min(TIMEOUT_S, max(asked or TIMEOUT_S, _LEAST_S))
        with (
            self.interruption.allowed(),
            Service(self.launcher, order, self.paths, timeout_s=limit_s) as service,
        ):
            text = service.answer(most_bytes=_MOST_ANSWER)
            if not text:
                raise _CompanionError(service.end())
        try:
            said = parse_json(text)
        except Refused:
            said = None
        if not isinstance(said, dict):
            raise _CompanionError("its answer is no JSON object")
        if "error" in said:
            raise _CompanionError(" ".join(str(said["error"]).split())[:300])
        found: dict[str, Any] = {}
        try:
            if "work" in wanted:
                found["work"] = work_of(said.get("work"))
            if "peak" in wanted:
                found["peak"] = peak_of(said.get("peak"))
        except ValueError as error:
            raise _CompanionError(f"its answer is wrong: {error}") from None
        return found, _texts(said.get("files"))

    def _key(self, request: Request, name: str) -> str:
        """Return the key under which an answer is kept: the digest of all that decides it."""
        decides: dict[str, Any] = {
            "what": name,
            "function": [request.module, request.function],
            "environment": self._environment(),
        }
        if name == "work":
            decides["arguments"] = request.arguments
        else:
            decides["place"] = request.place
            decides["machine"] = self._machine()
        return sha256_of(json.dumps(decides, sort_keys=True, default=str).encode())

    def _environment(self) -> Mapping[str, Any]:
        run = self.run
        return {
            "python": run.environment.python,
            "distributions": run.environment.distributions_sha256,
            "container": run.container,
            "paths": [self.paths.first, self.paths.last],
            "checkouts": [[one["directory"], one["git_hash"]] for one in run.checkouts],
            "variables": [list(pair) for pair in run.plan.env],
            "class_type": run.plan.class_type,
        }

    def _machine(self) -> Mapping[str, Any]:
        machine = self.run.machine
        affinity = getattr(os, "sched_getaffinity", None)
        devices = machine.accelerators
        return {
            "boot": _boot_id(),
            "host": [machine.hostname, machine.cpu_model],
            "processors": sorted(affinity(0)) if affinity else os.cpu_count(),
            "cpu_limit": machine.cgroup_cpu_limit,
            "accelerators": devices and [devices.model, devices.count, devices.driver_version],
            "variables": sorted(
                pair for pair in os.environ.items() if _DECIDING.fullmatch(pair[0])
            ),
        }

    def _kept(self, name: str, key: str) -> dict[str, Any] | None:
        """Return what is kept of an answer; None when there is none, or its code has changed."""
        try:
            entry = parse_json(read_file(self._path(key), _MOST_ANSWER))
            {"work": work_of, "peak": peak_of}[name](entry["figures"])
            files = {str(path): known for path, known in dict(entry["files"]).items()}
        except (OSError, ValueError, TypeError, KeyError):
            return None
        if len(files) > _MOST_FILES:
            return None
        return entry if self._fingerprints(files) == files else None

    def _fingerprints(self, files: Iterable[str]) -> dict[str, str]:
        """Return a digest of each module's file that is on this host.

        A file of an image is not, and changes with the image only. Of files that are large
        together, the last ones count by size and time, too.
        """
        is_apart, prints, left = self.run.container is not None, dict[str, str](), _HASHED_IN_ALL
        roots = tuple(f"{root}/" for root in (*self.paths.first, *self.paths.last))
        for path in files:
            if is_apart and (not path.startswith(roots) or ".." in path.split("/")):
                continue
            print_, hashed = fingerprint(Path(path), min(left, _HASHED))
            left -= hashed
            if print_ is not None:
                prints[path] = print_
        return prints

    def _keep(
        self,
        keys: Mapping[str, str],
        found: Mapping[str, Work | Peak | None],
        wanted: Sequence[str],
        files: Sequence[str],
        done: float | None,
        searches: int,
    ) -> None:
        """Keep answers; a workspace that cannot be written costs the next run a process."""
        if len(files) > _MOST_FILES:
            return
        known = self._fingerprints(files)
        for name in wanted:
            value = found[name]
            if value is None or value.why_unknown:  # perhaps for want of memory: of this run only
                self.asked[keys[name]] = value.why_unknown if value else ""
                continue
            self.asked[keys[name]] = ""
            entry = {
                "figures": asdict(value),
                "done": done,
                "disturbed": self.disturbed,
                "searches": searches,
                "files": known,
            }
            with contextlib.suppress(OSError):
                path = self._path(keys[name])
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, json.dumps(entry))

    def _path(self, key: str) -> Path:
        return self.run.plan.workspace / FOLDER / f"{key}.json"


class _CompanionError(Exception):
    """A companion gave no figures; the text says why."""


def read_requests(private: Path) -> tuple[list[Request], list[str]]:
    """Return the requests of a trial in their order, and notes on those that are none."""
    found: list[Request] = []
    notes: list[str] = []
    with contextlib.suppress(OSError), Folder(private) as folder:
        there = set(folder.names(REQUEST))
        for number in range(1, MOST_REQUESTS + 1):
            name = f"{REQUEST}{number}.json"
            if name not in there:
                break
            try:
                found.append(_request(folder.json(name, MOST_BYTES)))
            except (OSError, ValueError) as error:
                notes.append(f"{name} is no request to the companion: {error}")
    return found, notes


def _request(said: Any) -> Request:
    if not isinstance(said, dict) or set(said) != _KEYS:
        raise ValueError(f"it is not an object with the keys {', '.join(sorted(_KEYS))}")
    for name in ("report", "module", "function"):
        if not isinstance(said[name], str):
            raise ValueError(f"{name} is no text")
    if not _DOTTED.fullmatch(said["module"]) or not said["function"].isidentifier():
        raise ValueError("module and function are no names of Python")
    if not isinstance(said["arguments"], dict) or not isinstance(said["place"], dict):
        raise ValueError("arguments and place are no objects")
    if said["rate"] is not None and not is_positive(said["rate"]):
        raise ValueError("rate is not a finite number above 0")
    return Request(**said)


def fingerprint(path: Path, most_bytes: int = _HASHED) -> tuple[str | None, int]:
    """Return the digest of a file, or size and time of a large one, and how much was read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None, 0
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None, 0
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if facts.st_size > most_bytes or not stat.S_ISREG(facts.st_mode):
            return f"{facts.st_size} bytes, {facts.st_mtime_ns}", 0
        data = file.read(most_bytes)
        return sha256_of(data), len(data)


def _texts(said: object) -> list[str]:
    return [one for one in said if isinstance(one, str)] if isinstance(said, list) else []


def _searches(entry: Mapping[str, Any] | None) -> int:
    """Return in how many runs a kept peak was searched for; 0 where none is kept."""
    told = (entry or {}).get("searches")
    return told if type(told) is int and told > 0 else int(entry is not None)


def _higher(found: Peak | None, kept: Peak | None) -> Peak | None:
    """Return the higher of two peaks of the same device: what is lower was disturbed."""
    if found is None or kept is None:
        return found or kept
    return kept if (kept.flops_per_second or 0) > (found.flops_per_second or 0) else found


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
