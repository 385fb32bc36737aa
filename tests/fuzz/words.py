"""What a worker, a supervisor, a service and a server say, and the files of a workspace."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any
from unittest.mock import patch

from perfrun.changes import search_log
from perfrun.compare import baseline_command, baselines
from perfrun.errors import UsageError, WorkspaceError
from perfrun.incidents import ledger
from perfrun.incidents.grouping import Sighting, brought_up_to_date
from perfrun.incidents.incident import incident_row
from perfrun.incidents.words import text_of
from perfrun.launchers.docker_engine import Streams
from perfrun.launchers.launcher import Exit
from perfrun.launchers.supervisor_words import message_of, report_of
from perfrun.nightly import night_state, webhook
from perfrun.nodes.words import period_row, quarantine_lines
from perfrun.options import own_files
from perfrun.options.plan import MethodSelector, RepoSpec, RunPlan
from perfrun.run import companion, journal, outcome, worker_words
from perfrun.schema import Wrong
from perfrun.store import quarantine
from perfrun.summary.arithmetic import peak_of, work_of
from perfrun.summary.assemble import out_of_bounds
from perfrun.untrusted import Refused, parse_json
from perfrun.worker.measure import measurement, series_files
from perfrun.worker.modules import could_define, modules_in
from perfrun.worker.test_log import TestLogError, decode_entries
from perfrun.workspace import commits, data_records, remote
from tests.attack.test_shown_text import night

from .target import Call, Target, folder, is_folder, text

_END = Exit(
    exit_code=0, signal_number=None, stopped_for=None, elapsed_s=1.0, user_cpu_s=1.0,
    system_cpu_s=0.0, max_rss_bytes=1, strays=(),
)  # fmt: skip
_ROW = struct.Struct("<4q")


def _can_be_written(found: object) -> None:
    json.dumps(found, ensure_ascii=False).encode()


def _outcome(data: bytes) -> None:
    notes: list[str] = []
    record = worker_words.outcome_of(parse_json(data), "outcome.json", notes)
    left = outcome.Leftovers(
        record=record, reports=(), series=(), stack=None, stderr_tail="x", notes=tuple(notes)
    )
    judged = outcome.judge_outcome(left, _END, oom_kills=0, timeout_s=1.0)
    _can_be_written([record, judged.status.value, judged.reason])
    _can_be_written(outcome.notes_on(left, _END, judged))
    assert not judged.status.ran or not record.get("error")


def _series(data: bytes) -> None:
    notes: list[str] = []
    facts = worker_words.series_of(parse_json(data), "series_1.json", notes)
    _can_be_written([facts, notes])
    if "statistics" not in facts:  # as run/outcome: a whole one has its figures, or none
        rows = series_files.parse_rows(_ROWS)
        facts = {**dict.fromkeys(outcome._LATER), **facts, **measurement.evaluate(rows)}
        facts["devices"] = facts["devices"] or 1
        _can_be_written(measurement.derive(facts))


def _rows(data: bytes) -> None:
    rows = series_files.parse_rows(data)
    worker_words.check_rows(rows)
    json.dumps([measurement.kept_times(rows), measurement.evaluate(rows)], allow_nan=False)


def _reports(data: bytes) -> None:
    reports = tuple(outcome._report(entry) for entry in decode_entries(data, [10_000]))
    out_of_bounds(reports)
    _can_be_written([[r.name, list(r.extras), [m.name for m in r.metrics]] for r in reports])


def _trial_files(data: bytes) -> None:
    """The first byte says which of a trial's files has the rest."""
    place = folder("trial")
    private = place / "perfrun"
    private.mkdir(exist_ok=True)
    paths = [place / name for name in ("proto_1", "stderr.log")]
    paths += [private / n for n in ("outcome.json", "series_1.json", "series_1.rows", "stack.txt")]
    path = paths[(data[0] if data else 0) % len(paths)]
    path.write_bytes(data[1:])
    try:
        left = outcome.read_leftovers(place, private)
    finally:
        path.write_bytes(_KNOWN.get(path.name, b""))
    judged = outcome.judge_outcome(left, _END, oom_kills=0, timeout_s=1.0)
    _can_be_written([dict(left.record), list(left.series), left.stack, left.stderr_tail])
    _can_be_written([judged.reason, outcome.notes_on(left, _END, judged)])


def _supervisor(data: bytes) -> None:
    said, notes = parse_json(data), list[str]()
    message = message_of(said, notes)
    report = report_of(message.get("exit", said), notes)
    _can_be_written([message, report, notes])
    if report:
        end = Exit(
            **{"stopped_for": None, **_FIGURES, **{k: report[k] for k in _FIGURES if k in report}},
            strays=tuple(report.get("strays", ())), cgroup=report.get("cgroup"),
            exit_code=report["exit_code"], signal_number=report["signal_number"],
        )  # fmt: skip
        left = outcome.Leftovers(
            record={}, reports=(), series=(), stack=None, stderr_tail=None, notes=()
        )
        judged = outcome.judge_outcome(left, end, oom_kills=1, timeout_s=None)
        _can_be_written([judged.reason, outcome.notes_on(left, end, judged)])


def _streams(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        streams = Streams(_Connection(ours))
        while not streams.ended:
            streams.receive()
        for message in streams.messages:
            message_of(message, [])


class _Connection:
    def __init__(self, ours: socket.socket) -> None:
        self._sock = ours


def _discovered(data: bytes) -> None:
    target = {"module": "a.b", "class_name": "C", "method": "m"}
    for line in text(data).splitlines()[:3]:
        answer = worker_words.discovered(line, target)
        assert answer["target"] is target
        assert answer.get("error") or all(
            isinstance(one["class"] + one["method"], str) for one in answer["methods"]
        )
        _can_be_written(answer)


def _described(data: bytes) -> None:
    failures = []
    for read in (
        worker_words.description,
        worker_words.flags_error,
        lambda t: worker_words.uploads(t, ["a.b", "c.d"]),
        lambda t: companion._request(parse_json(t)),
        lambda t: work_of(parse_json(t)),
        lambda t: peak_of(parse_json(t)),
    ):
        try:
            _can_be_written(worker_words.text_values(read(text(data))))  # type: ignore[no-untyped-call]
        except (Wrong, Refused, ValueError) as error:
            failures.append(error)
    if len(failures) == 6:
        raise failures[0]


def _source(data: bytes) -> None:
    place = folder("source")
    (place / "bench.py").write_bytes(data)
    (place / "base.py").write_bytes(b"class Base(other.Base): pass\nfrom bench import *\n")
    modules_in(str(place), ())
    could_define(str(place), "bench", "Sorting", "numbers")


def _own_files(data: bytes) -> None:
    place = folder("own")
    (place / "sorting.py").write_bytes(b"class Sorting(Benchmark):\n def numbers(self): pass\n")
    words = [word.replace("PLACE", str(place)) for word in text(data).split("\n")]
    # A folder is searched whole, however large it is: it is the user who names it.
    words = [word for word in words if not is_folder(word.partition("::")[0])]
    files, methods = own_files.split_words(words)
    for file in files:
        assert len(file.selectors) == len(file.names)
        assert all(m for m in file.selectors)
    assert all(method.method for method in methods)
    repos = (RepoSpec(url="u", directory="d"),)
    own_files.from_here(text(data).split("\n"), str(place), repos)


@cache
def _plan() -> RunPlan:
    return RunPlan(
        selectors=(MethodSelector(text="a.B.c", module="a", class_name="B", method="c"),)
    )


def _journal(data: bytes) -> None:
    runs = folder("runs")
    path = runs / "20261121-100000-000000-abcdef.jsonl"
    path.write_bytes(data)
    found = journal.unfinished(runs, _plan())
    if found is not None:
        json.dumps([dict(found.pinned), found.seed])
        assert all(isinstance(a, str) and type(b) is int for a, b in found.started)
        for value in (*found.started.values(), *found.finished.values()):
            value.exists()  # it raises for a name that the system cannot be asked for
        found.knows(("m", 1), "x")
    journal.complete(runs, _plan())
    journal.going_on(runs)
    journal.own_summaries(path)
    journal.used_by_runs(runs)
    journal.Journal(path).remove_unfinished()


def _search(data: bytes) -> None:
    place = folder("searches") / "20261121-100000-abcdef"
    place.mkdir(exist_ok=True)
    (place / search_log.LOG_NAME).write_bytes(data)
    found = search_log.unfinished_search(place.parent, "f" * 64)
    if found is not None:
        sum(pair.values[0] for pair in found.pairs) + found.spent_s


def _baseline(data: bytes) -> None:
    workspace = folder("workspace")
    place = workspace / baselines.FOLDER
    place.mkdir(exist_ok=True)
    (place / "name.json").write_bytes(data)
    assert baselines.names(workspace) == ["name"]
    found = baselines.named(workspace, "name")
    _can_be_written([found.methods, found.notes])
    assert baselines.named_trials(workspace) == found.trials
    assert 0 <= baseline_command._gone(found, workspace) <= len(found.trials)


def _incidents(data: bytes) -> None:
    workspace = folder("workspace")
    (workspace / ledger.FILE).write_bytes(data)
    known = ledger.read(workspace)
    _can_be_written([incident_row(one) for one in known.incidents])
    text_of(known.incidents, (), 0)
    brought_up_to_date(known, [Sighting(change=c) for one in known.incidents for c in one.changes])


def _quarantine(data: bytes) -> None:
    workspace = folder("workspace")
    (workspace / quarantine.FILE).write_bytes(data)
    known = quarantine.read(workspace)
    _can_be_written([period_row(one) for one in known.periods])
    quarantine_lines(known)
    for one in known.periods:
        assert known.leaves_out(one.node, 5.0) in (True, False)
    assert not any(one.is_open for one in quarantine.released(known, known.nodes, 9.0).periods)


def _records(data: bytes) -> None:
    place = folder("records")
    records = data_records.DataRecords(place)
    path = place / "data"
    (place / records._name(path, "")).write_bytes(data)
    records.read(path)


def _night(data: bytes) -> None:
    nights = night_state.Nights(folder("nights-of"))
    place = nights.folder / "n-2026-11-21"
    place.mkdir(parents=True, exist_ok=True)
    (place / night_state.FILE).write_bytes(data)
    newest = nights.newest()
    assert newest is None or isinstance(newest, str)
    nights.over()


def _git(data: bytes) -> None:
    said = text(data)
    for repo in (RepoSpec(url="u", directory="d"), RepoSpec(url="u", directory="d", branch="main")):
        remote.why_not_among(said, repo)
    found = commits.parse_log(said.encode("utf-8", "surrogateescape"))
    assert len(found) == (data.count(b"\0")) // 7


def _webhook(data: bytes) -> None:
    port = _Server.of_process(os.getpid()).answering(data)
    url = f"http://127.0.0.1:{port}/s3cret/x"
    # A second try would get the same answer.
    with patch.object(webhook, "PAUSES_S", ()):
        why = webhook.post(url, _REPORTED)
    assert why is None or (why.isprintable() and "s3cret" not in why and len(why) < 1000)


_REPORTED = night("x")


class _Server(threading.Thread):
    """Answers every request with the same bytes, then hangs up."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._answer = b""
        self.start()

    @staticmethod
    @cache
    def of_process(_process: int) -> _Server:
        return _Server()

    def answering(self, data: bytes) -> int:
        self._answer = data
        port: int = self._listening.getsockname()[1]
        return port

    def run(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection, connection.makefile("rb") as file:
                try:
                    length = 0
                    while (line := file.readline()) not in (b"\r\n", b""):
                        found = re.match(rb"(?i)content-length: (\d+)", line)
                        length = int(found[1]) if found else length
                    file.read(length)
                    connection.sendall(self._answer)
                except OSError:
                    pass


def _json(said: Any) -> bytes:
    return json.dumps(said).encode()


def _lines(*events: Mapping[str, Any]) -> bytes:
    return b"".join(_json(event) + b"\n" for event in events)


_FIGURES = {"elapsed_s": 1.0, "user_cpu_s": 1.0, "system_cpu_s": 0.5, "max_rss_bytes": 1}
_ROWS = b"".join(
    _ROW.pack(*row)
    for row in ((9000, 8000, -1, -1), (2000, 1900, -1, -10), *[(1000, 900, -1, 10)] * 12)
)
_HEADER = {
    "name": "a.B.c", "report": None, "items_per_step": 1, "item": "step", "unit": "s",
    "direction": "lower", "clock": {"name": "perf_counter", "implementation": "c",
    "resolution_s": 1e-9}, "complete": False, "stopped_by": None, "target": {"precision": 0.01,
    "max_s": None}, "notes": ["n"],
}  # fmt: skip
_WHOLE = {
    **_HEADER, "complete": True, "block_size": 10, "device": None, "devices": 1,
    "synchronised_by": ["a"], "timer": {"overhead_s": 1e-8, "share": 0.01},
    "gc": {"mode": "off", "enabled": False, "collections": [0, 1], "time_s": 0.1},
    "recompilations": {"jit": 0}, "first_call_s": 0.1,
    "warmup": {"iterations": 1, "steps": 10, "time_s": 0.1, "times_s": [0.1], "every": 1},
    "iterations": 12, "steps": 120, "timed_s": 1.2, "times_every": 1,
    "statistics": {"of": "s", "count": 12, "median_s": 0.1, "mean_s": 0.1, "min_s": 0.1,
    "max_s": 0.2, "absent": {"p99_s": "few"}}, "steadiness": {"kind": "flat", "steady": True},
    "cpu_s": 1, "metrics": {"loss": {"value": 0.5, "unit": "", "direction": "lower"}},
}  # fmt: skip
_OUTCOME = {
    "complete": True, "phase": "method", "pid": 12, "error": None, "timestamp": 1795255200.5,
    "phases": {"import": {"wall_s": 0.1, "cpu_s": 0.1}},
    "memory": {"before_method": {"peak_rss_bytes": 1}, "end": {"peak_rss_bytes": 2}, "reset": True},
    "resources": {"before": {"user_s": 0.1}, "after": {"user_s": 0.2, "minor_faults": 3}},
    "allocators": [{"device": "cpu", "framework": "torch", "peak_allocated_bytes": 1}],
    "allocator": {"name": "glibc", "settings": {"a": "b"}}, "module_file": "/a/b.py",
    "framework": {"name": "torch", "version": "2"}, "frameworks": [{"name": "torch"}],
    "unsaved_reports": [{"name": "x", "wall_time": 1.5, "extras": {"a": [1, None]}}],
    "profiles": [{"kind": "cpu", "windows": [{"part": "a", "begin_s": 1, "end_s": 2}],
    "top": [{"name": "f", "self_s": 1.5}, {"name": "g"}], "files": [{"path": "a/b", "bytes": 1}]}],
    "notes": ["n"],
}  # fmt: skip
_ERROR = {
    "complete": True, "phase": "method",
    "error": {"kind": "exception", "type": "E", "message": "m\nn", "traceback": "t"},
}  # fmt: skip
_REPORT = {
    "exit_code": 0, "signal_number": None, "resources": {"user_s": 0.1, "read_bytes": 1},
    **_FIGURES, "strays": ["sleep"], "told_from_outside": None, "harness_is_gone": False,
    "cgroup": {"version": 2, "path": "/a", "memory_peak_bytes": 1, "oom_kills": 1,
    "memory_limit_bytes": 5, "peak_split": {"anon_bytes": 1}, "cpu_usage_s": 0.1},
}  # fmt: skip
_KNOWN = {"outcome.json": _json(_OUTCOME), "series_1.json": _json(_WHOLE), "series_1.rows": _ROWS}
_JOURNAL = _lines(
    {"event": "begin", "begun": 1.5, "fingerprint": journal.fingerprint(_plan()),
     "pinned": {"a": "b"}, "seed": 1, "used": ["a"]},
    {"event": "round", "steps": [{"method": "m", "trial_id": 1, "round": 1, "rerun_of": None}]},
    {"event": "started", "method": "m", "trial_id": 1, "folder": "gone"},
    {"event": "written", "method": "m", "trial_id": 1, "sha256": "a" * 64},
    {"event": "finished", "method": "m", "trial_id": 1, "summary": "gone/s.json"},
)  # fmt: skip
_SEARCH = _lines(
    {"event": "begin", "begun": 1.5, "schema": 1, "fingerprint": "f" * 64, "seed": 1,
     "revisions": ["a", "b"]},
    {"event": "pair", "a": 0, "b": 1, "values": [1.0, 2.0], "summaries": ["a", "b"], "seconds": 1},
    {"event": "failed", "trials": 2, "seconds": 1.5},
    {"event": "broken", "revision": 1, "why": "w"},
)  # fmt: skip
_BASELINE = _json(
    {"version": 1, "set_at": 1.5, "selection": ["last"], "trials": [{"uid": "a" * 64,
     "execution_id": "e", "method": "m", "timestamp": 1.5, "path": "output/e/s.json"}]}
)  # fmt: skip
_QUARANTINE = _json(
    {"version": 1, "periods": [
        {"node": "n1", "at": 2.5, "because": "fan", "since": 1.5, "until": None},
        {"node": "n1", "at": 1, "because": "", "since": None, "until": 3.5}]}
)  # fmt: skip
_COMMITS = {"models": ["a", "b"]}
_INCIDENTS = _json(
    {"version": 1, "next": 2, "canaries": ["c"], "owners": {"m": "o"}, "incidents": [
        {"id": 1, "owner": "o", "is_bisecting": False, "is_fixed": False, "told": 1,
         "has_told_end": False, "culprit": {"name": "a", "author": "b", "subject": "c"},
         "decision": {"what": "accepted", "at": 1.5, "day": "2026-11-21", "reason": ""},
         "changes": [
             {"method": "m", "metric": "wall_time", "environment": "e", "hardware": "h",
              "settings": "", "series": "s", "ratio": 1.1, "low": 1.05, "high": 1.2, "level": 2.0,
              "night": "2026-11-20", "alarm_night": "2026-11-21", "status": "confirmed",
              "is_machine": False, "before_execution_id": "b", "after_execution_id": "a",
              "commits": _COMMITS, "differences": ["numpy 2.2 -> 2.3"],
              "returned": {"night": "2026-11-22", "alarm_night": "2026-11-23",
                           "commits": _COMMITS}}]}]}
)  # fmt: skip
_NIGHT = _json(
    {"night": "n-2026-11-21", "suite": "n", "digest": "d", "begun": 1.5, "deadline": None,
     "ended": None, "told": False, "units": {}}
)  # fmt: skip
_METHODS = _json(
    {"target": {"module": "a"}, "methods": [{"class": "C", "method": "m", "doc": "d"}]}
)
_MISSING = _json({"target": {"module": "a"}, "error": "no", "is_missing": True, "inside": ["a"]})
_DESCRIPTION = _json(
    {"python": {"version": "3.11.2", "build": "b"}, "distributions": {"numpy": "1"},
     "direct_url_commits": {}, "image_info": {"a": 1}}
)  # fmt: skip
_REQUEST = _json(
    {"report": "r", "module": "a.b", "function": "f", "arguments": {}, "place": {}, "rate": 1.5}
)


def _entry_seed() -> bytes:
    from perfrun.worker.test_log import encode_entry

    metrics: Any = [{"name": "top_1", "value": 0.7, "min_value": 0.8, "max_value": 0.9}]
    return encode_entry("a.B.c", 3, 0.5, 1.5, 2.0, {"batch_size": 8, "text": "word"}, metrics)


def _framed(line: bytes, stream: int = 1) -> bytes:
    return struct.pack(">BxxxI", stream, len(line)) + line


def _target(
    name: str, call: Call, *seeds: bytes, errors: tuple[type[Exception], ...] = ()
) -> Target:
    return Target(name=name, call=call, seeds=seeds, errors=errors)


TARGETS = (
    _target("outcome", _outcome, _json(_OUTCOME), _json(_ERROR), errors=(Refused, Wrong)),
    _target("series", _series, _json(_HEADER), _json(_WHOLE), errors=(Refused, Wrong)),
    _target("rows of a series", _rows, _ROWS, errors=(Wrong,)),
    _target("reports", _reports, _entry_seed(), errors=(TestLogError,)),
    _target(
        "files of a trial",
        _trial_files,
        *(bytes([n]) + d for n, d in enumerate((_entry_seed(), b"err", *_KNOWN.values()))),
    ),
    _target(
        "supervisor's words",
        _supervisor,
        _json({"worker": 5}),
        _json({"ended": 5, "exit": _REPORT}),
        _json(_REPORT),
        errors=(Refused,),
    ),
    _target(
        "streams of a container",
        _streams,
        _framed(b'{"worker": 5}\n') + _framed(b"error", 2) + _framed(b'{"ended": 5}\n'),
    ),
    _target("discovery", _discovered, _METHODS, _MISSING),
    _target(
        "answers of services",
        _described,
        _DESCRIPTION,
        _json({"error": "no"}),
        _json([{"method": "a.b", "error": None}]),
        _REQUEST,
        _json({"flops_per_example": 1.5, "counted_by": "c"}),
        _json({"flops_per_second": 2.5}),
        errors=(Wrong, Refused),
    ),
    _target(
        "source of a module",
        _source,
        b"from base import Base as B, x\nimport base\nclass Sorting(B):\n  def numbers(self): 1\n",
        b"from . import (\n a, b as c)\nclass Sorting(c.Base): numbers = 5\n",
    ),
    _target(
        "own files",
        _own_files,
        b"PLACE/sorting.py\nPLACE/sorting.py::Sorting.numbers\na.B.c",
        b"PLACE/sorting.py::Sorting.filter:n.*",
        b"PLACE/sortin.py",
        errors=(UsageError,),
    ),
    _target("journal", _journal, _JOURNAL, _JOURNAL + _lines({"event": "end"})),
    _target("log of a search", _search, _SEARCH, _SEARCH + _lines({"event": "end", "status": "x"})),
    _target("baseline", _baseline, _BASELINE, errors=(WorkspaceError, UsageError)),
    _target("quarantine", _quarantine, _QUARANTINE, errors=(WorkspaceError,)),
    _target("incidents", _incidents, _INCIDENTS, errors=(WorkspaceError,)),
    _target("record of a night", _night, _NIGHT),
    _target(
        "record of data",
        _records,
        _json(
            {
                "url": "u",
                "sha256": "a",
                "inode": 1,
                "size": 2,
                "mtime_ns": 3,
                "ctime_ns": 4,
                "unpacked": None,
            }
        ),
    ),
    _target(
        "git's answers",
        _git,
        b"a" * 40 + b"\trefs/heads/main\n" + b"b" * 40 + b"\tHEAD\n",
        b"a" * 40 + b"\0A <a@b>\x002026-11-21T00:00:00+00:00\0subject\0",
    ),
    _target(
        "answer of a webhook",
        _webhook,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 302 Found\r\nLocation: https://host/x\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ),
)
