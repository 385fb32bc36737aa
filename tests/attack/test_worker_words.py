"""A worker says what it likes: its words never end a run, and never become figures unchecked.

Each attack is a benchmark that has written its own outcome, series, reports or answers, or (in a
container) its supervisor's. What is judged is what a real worker left, with one thing made wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import schemas
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import ENDED, Bench, real_files
from worlds import World

from perfrun.launchers.supervisor_words import message_of, report_of
from perfrun.run import worker_words
from perfrun.run.worker_words import discovered
from perfrun.schema import Wrong
from perfrun.untrusted import Refused
from perfrun.worker.test_log import TestLogError, decode_entries, encode_entry

OUTCOME, SERIES, ROWS = "perfrun/outcome.json", "perfrun/series_1.json", "perfrun/series_1.rows"
# `PERFRUN_FUZZ=10000` tries as many examples of each property.
fuzzed = settings(max_examples=int(os.environ.get("PERFRUN_FUZZ", "40")))
# As they stand in JSON. A field for which one of them is right keeps its own value.
BAD = {
    "null": "null",
    "true": "true",
    "below zero": "-1",
    "nan": "NaN",
    "too large": "18446744073709551615",
    "a list": "[[], {}, 1]",
    "an object": '{"a": {"b": []}, "\\ud800": 1}',
    "a text": '"\\ud800\\u0000\\u001b[31m"',
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return real_files(tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def with_text(document: bytes, field: str, text: str) -> bytes:
    """The document with a field that stands for this text of JSON."""
    whole = {**json.loads(document), field: "HERE"}
    return json.dumps(whole).replace('"HERE"', text).encode()


FIELDS_OF_OUTCOME = (
    "allocator", "allocators", "benchmark_version", "complete", "error", "framework", "frameworks",
    "memory", "module_file", "notes", "phase", "phases", "pid", "profiles", "resources",
    "timestamp", "unsaved_reports",
)  # fmt: skip
FIELDS_OF_SERIES = (
    "block_size", "clock", "complete", "cpu_s", "cudnn_autotune", "device", "device_time_s",
    "devices", "direction", "first_call_s", "gc", "item", "items_per_step", "iterations",
    "major_faults_per_step", "metrics", "minor_faults_per_step", "name", "notes",
    "recompilations", "report", "statistics", "steadiness", "steps", "stopped_by",
    "synchronised_by", "system_cpu_s", "target", "throughput_per_device_per_s",
    "throughput_per_s", "timed_s", "timer", "times_every", "unit", "warmup",
)  # fmt: skip


def test_what_a_real_worker_says_is_all_right(real: dict[str, bytes], bench: Bench) -> None:
    judged = bench.judged(real)
    assert (judged.status, judged.notes) == ("passed", "")
    assert set(json.loads(real[OUTCOME])) == set(FIELDS_OF_OUTCOME)
    assert set(json.loads(real[SERIES])) == set(FIELDS_OF_SERIES)
    assert judged.record.metrics["wall_time"].value > 0
    [series] = judged.own["series"]
    assert {name: series[name] for name in FIELDS_OF_SERIES} == json.loads(real[SERIES])


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("field", FIELDS_OF_OUTCOME)
def test_a_wrong_field_of_an_outcome_is_left_out(
    field: str, bad: str, real: dict[str, bytes], bench: Bench
) -> None:
    said = with_text(real[OUTCOME], field, BAD[bad])
    judged = bench.judged({**real, OUTCOME: said})
    if judged.status == "failed":  # an error that cannot be read does not pass
        assert field == "error"
        assert "outcome.json cannot be read: its error" in judged.own["outcome"]["reason"]
    elif field == "complete" and bad != "true":
        assert judged.status == "exited"
    else:
        assert judged.status == "passed"
    if judged.notes:
        assert judged.notes.startswith("outcome.json")


@pytest.mark.parametrize("bad", ["null", "below zero", "nan", "a list", "an object", "a text"])
@pytest.mark.parametrize("field", FIELDS_OF_SERIES)
def test_a_wrong_field_of_a_series_is_left_out(
    field: str, bad: str, real: dict[str, bytes], bench: Bench
) -> None:
    said = with_text(real[SERIES], field, BAD[bad])
    judged = bench.judged({**real, SERIES: said})
    assert judged.status == "passed"
    if judged.notes:
        assert "series_1.json" in judged.notes
    for series in judged.own["series"]:
        assert set(FIELDS_OF_SERIES) <= set(series)


@pytest.mark.parametrize("name", [OUTCOME, SERIES, ROWS, "proto_Cases.sums", "perfrun/stack.txt"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 1000,
        b"\xff\xfe" * 1000,
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b"{" * 100_000,
        b"[" * 50 + b"]" * 50,
        b'{"a":' * 500 + b"1" + b"}" * 500,
        b"9" * 10_000,
        b'{"timestamp": ' + b"9" * 400 + b"}",
        b'{"phase": "' + b"x" * 10_000_000 + b'"}',
        b'{"notes": [' + b'"x",' * 100_000 + b'"x"]}',
        b'{"complete": true, "complete": [], "name": 1, "name": {}}',
        struct.pack("<4q", -(2**63), -1, -(2**63), 2**63 - 1) * 3,
        struct.pack("<4q", 2**63 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1) * 3,
        struct.pack("<8q", 1, 1, 1, 5, 1, 1, 1, -5),
        struct.pack("<8q", 1, 1, 1, 5, 1, 1, 1, 0) + b"\0" * 31 + b"\1",
    ],
    ids=lambda content: (
        repr(content[:24]) + str(len(content)) if isinstance(content, bytes) else ""
    ),
)
def test_any_content_of_a_file_gives_a_summary(
    name: str, content: bytes, real: dict[str, bytes], bench: Bench
) -> None:
    judged = bench.judged({**real, name: content})
    assert judged.status in ("passed", "failed", "exited")
    if name != OUTCOME:
        assert judged.status == "passed"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"complete": True, "error": "boom"}, "its error cannot be read"),
        ({"complete": True, "error": {"kind": "joke", "message": "m"}}, "its error cannot be read"),
        ({"error": {"kind": "exception"}}, "an exception: "),
        ({"error": {"kind": "exception", "type": 1, "message": []}}, "an exception: "),
        ({"error": {"kind": "exit", "message": "a\nb"}}, "the benchmark called sys.exit(a"),
        ({"error": {"kind": "exit", "exit_code": "3"}}, "the benchmark called sys.exit()"),
    ],
)
def test_an_error_with_wrong_words_stays_an_error(
    values: dict[str, Any], reason: str, real: dict[str, bytes], bench: Bench
) -> None:
    said = json.dumps({**json.loads(real[OUTCOME]), **values}).encode()
    judged = bench.judged({**real, OUTCOME: said}, replace(ENDED, exit_code=1))
    assert judged.status in ("failed", "exited")
    assert reason in judged.own["outcome"]["reason"]


def test_an_outcome_that_is_not_usable_says_why(real: dict[str, bytes], bench: Bench) -> None:
    judged = bench.judged({**real, OUTCOME: b'{"timestamp": 1' + b"0" * 400 + b"}"})
    assert judged.status == "failed"
    assert judged.own["outcome"]["reason"] == (
        "outcome.json cannot be read: an integer of more than 64 bits"
    )


def test_sizes_that_no_machine_has_are_no_peaks(real: dict[str, bytes], bench: Bench) -> None:
    marks = {"peak_rss_bytes": 2**60, "peak_vms_bytes": -5}
    peak = {"framework": "torch", "peak_allocated_bytes": 2**62, "peak_reserved_bytes": 1e300}
    values = {"memory": {"end": marks, "before_method": marks}, "allocators": [peak] * 500}
    said = json.dumps({**json.loads(real[OUTCOME]), **values}).encode()
    judged = bench.judged({**real, OUTCOME: said})
    assert judged.status == "passed"
    assert max(judged.document["process_info"].values()) < 2**40
    assert "outcome.json: memory.end.peak_rss_bytes is 1152921504606846976, not" in judged.notes
    assert "more notes" in judged.notes


def test_counters_that_fall_are_unknown(real: dict[str, bytes], bench: Bench) -> None:
    counts = {"user_s": 9.0, "minor_faults": 10, "read_bytes": 100}
    resources = {"before": counts, "after": {"user_s": 1.0, "minor_faults": 12, "read_bytes": 3}}
    said = json.dumps({**json.loads(real[OUTCOME]), "resources": resources}).encode()
    method = bench.judged({**real, OUTCOME: said}).own["cpu"]["method"]
    assert (method["user_s"], method["minor_faults"], method["read_bytes"]) == (None, 2, None)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../secret", "a/../../b", "a\0b", ["a"], None, "x" * 10_000 + "/.."]
)
def test_a_profile_lists_no_file_outside_the_folder(
    path: Any, real: dict[str, bytes], bench: Bench
) -> None:
    rows = [{"name": "f", "self_s": 1.0}, {"name": "g"}, {"name": "h", "self_s": "2"}, "row"]
    profile = {
        "files": [{"path": path, "bytes": 1}, {"path": "profile/a", "bytes": 2}],
        "top": rows,
    }
    said = json.dumps({**json.loads(real[OUTCOME]), "profiles": [profile, 3]}).encode()
    [kept] = bench.judged({**real, OUTCOME: said}).own["profiles"]
    assert kept["files"] == [{"path": "profile/a", "bytes": 2}]
    assert kept["top"] == [{"name": "f", "self_s": 1.0}]  # rows are columns of one table


def test_reports_with_thousands_of_metrics_and_fields_are_bounded(
    real: dict[str, bytes], bench: Bench
) -> None:
    metrics = [{"name": "m" * 2000, "value": float("nan"), "max_value": 1.0}] * 100
    report = encode_entry("C.m" * 9999, metrics=metrics, extras={"e": "\x1b" * 10_000})
    junk = b"\x0a\x80\x80\x40" + b"\x78\x00" * 524_288  # an entry of half a million unknown fields
    files = {f"proto_{number}_C.m": report for number in range(2, 20)}
    judged = bench.judged({**real, **files, "proto_900_junk": junk})
    assert judged.status == "out_of_bounds"
    assert len(judged.own["outcome"]["reason"]) < 3000
    assert max(len(one["name"]) for one in judged.own["reports"]) <= 1000
    assert "more fields than any report has" in judged.notes


def test_a_summary_that_no_reader_takes_is_no_summary(
    real: dict[str, bytes], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfrun.run.trial.LARGEST_BYTES", 2000)
    judged = bench.judged(real)
    assert judged.status == "failed"
    assert "could not judge this trial" in judged.own["outcome"]["reason"]


def test_what_breaks_perfrun_costs_its_trial_and_names_a_log(
    real: dict[str, bytes], bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise RecursionError("as if a check were missing\nperfrun: all passed")

    monkeypatch.setattr("perfrun.run.trial.judge_quality", breaks)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    judged = bench.judged(real)
    assert judged.status == "failed"
    reason = judged.own["outcome"]["reason"]
    assert reason.startswith(
        "perfrun could not judge this trial: internal error: RecursionError: as if a check were "
    )
    assert "\n" not in reason
    [log] = tmp_path.glob("perfrun-error-*.log")
    assert reason.endswith(str(log))
    assert "in breaks" in log.read_text()
    assert judged.own["usage"]["elapsed_s"] >= 0


# Whatever the bytes, in any of the files, and whatever is changed in what a real worker said.

scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def places(document: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in a document."""
    items = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document[:2])
    for key, value in items:
        yield (*before, key)
        yield from places(value, (*before, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = changed(document[path[0]], path[1:], value)
    return copy


def mutated(document: Any, data: st.DataObject) -> bytes:
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(sorted(places(document), key=repr)))
        document = changed(document, path, data.draw(values))
    return json.dumps(document).encode()


@given(data=st.data())
@fuzzed
def test_any_change_of_an_outcome_gives_a_summary(
    data: st.DataObject, real: dict[str, bytes], bench: Bench
) -> None:
    bench.judged({**real, OUTCOME: mutated(json.loads(real[OUTCOME]), data)})


@given(data=st.data())
@fuzzed
def test_any_change_of_a_series_gives_a_summary(
    data: st.DataObject, real: dict[str, bytes], bench: Bench
) -> None:
    said = {SERIES: mutated(json.loads(real[SERIES]), data)}
    assert bench.judged({**real, **said}).status == "passed"


@given(
    name=st.sampled_from([OUTCOME, SERIES, ROWS, "proto_Cases.sums", "perfrun/stack.txt"]),
    content=st.binary(max_size=400),
    whole=st.booleans(),
)
@fuzzed
def test_any_bytes_in_any_file_give_a_summary(
    name: str, content: bytes, whole: bool, real: dict[str, bytes], bench: Bench
) -> None:
    files = {**real, name: content if whole else content + real[name][len(content) :]}
    if name == ROWS and not whole:  # of a series that was cut short, so that they are evaluated
        facts = json.loads(real[SERIES])
        files[SERIES] = json.dumps(
            {k: facts[k] for k in ("name", "items_per_step", "item")}
        ).encode()
    bench.judged(files)


@given(st.binary(max_size=200))
@fuzzed
def test_any_bytes_are_reports_or_none(content: bytes) -> None:
    for data in (content, b"\x0a" + bytes([len(content) % 128]) + content):
        with contextlib.suppress(TestLogError):
            decode_entries(data)


# The supervisor runs in the container with the benchmark.

REPORT = {
    "exit_code": 0,
    "signal_number": None,
    "elapsed_s": 1.5,
    "user_cpu_s": 1.0,
    "system_cpu_s": 0.5,
    "max_rss_bytes": 2**20,
    "resources": {"user_s": 1.0, "minor_faults": 3},
    "strays": ["sleep 600"],
    "told_from_outside": None,
    "harness_is_gone": False,
    "cgroup": {"version": 2, "path": "/x", "memory_peak_bytes": 2**20, "oom_kills": 0},
}


def end_of(report: dict[str, Any]) -> dict[str, Any]:
    """The fields of an `Exit` that a container's process takes from a report."""
    return {name: report[name] for name in ("exit_code", "signal_number")} | {
        name: report.get(name, getattr(ENDED, name))
        for name in ("elapsed_s", "user_cpu_s", "system_cpu_s", "max_rss_bytes")
    } | {"strays": tuple(report.get("strays", ())), "cgroup": report.get("cgroup"),
         "resources": report.get("resources")}  # fmt: skip


def test_the_report_of_a_real_supervisor_is_all_right() -> None:
    notes: list[str] = []
    assert report_of(REPORT, notes) == REPORT
    assert message_of({"exit": REPORT}, notes) == {"exit": REPORT}
    assert notes == []


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("field", REPORT)
def test_a_wrong_field_of_a_supervisors_report_is_left_out(
    field: str, bad: str, real: dict[str, bytes], bench: Bench
) -> None:
    notes: list[str] = []
    said = json.loads(with_text(json.dumps(REPORT).encode(), field, BAD[bad]))
    report = report_of(said, notes)
    others = {key: value for key, value in (report or {}).items() if key != field}
    assert others.items() <= REPORT.items()
    if report is None:
        assert field in ("exit_code", "signal_number")
        assert "exit.json cannot be used" in notes[-1]
    else:
        assert isinstance(report.get(field), type(REPORT[field]) | str | None)
    if report and field in ("resources", "strays", "cgroup"):
        judged = bench.judged(real, replace(ENDED, **end_of(report), notes=tuple(notes)))
        assert judged.status == "passed"


@given(data=st.data())
@fuzzed
def test_any_change_of_a_supervisors_report_gives_a_summary(
    data: st.DataObject, real: dict[str, bytes], bench: Bench
) -> None:
    report = report_of(json.loads(mutated(REPORT, data)), [])
    if report is not None:
        bench.judged(real, replace(ENDED, **end_of(report)))


@given(values)
@fuzzed
def test_any_message_of_a_supervisor_is_one_of_three(said: Any) -> None:
    assert set(message_of(said, [])) <= {"worker", "ended", "exit"}
    assert set(message_of({"exit": said, "worker": said}, [])) <= {"worker"}


# Answers of services: discovery, flags, uploads, descriptions.

TARGET = {"module": "pkg.cases"}


@pytest.mark.parametrize(
    "line",
    [
        "", "null", "[]", "3", '"text"', "{}", "{" * 5000, "9" * 10_000,
        '{"methods": null}', '{"methods": {}}', '{"error": ""}', '{"error": ["x"]}',
        '{"methods": "all"}', '{"target": 3}', '{"target": {"module": "evil"}, "error": ""}',
    ],
    ids=lambda line: line[:20],
)  # fmt: skip
def test_an_answer_of_discovery_that_is_none_is_an_error(line: str) -> None:
    answer = discovered(line, TARGET)
    assert answer["target"] == TARGET
    assert answer["error"].startswith("the worker's answer cannot be used: ")


@pytest.mark.parametrize("item", BAD.values(), ids=BAD)
def test_an_answer_of_discovery_has_methods_of_texts_only(item: str) -> None:
    good = {"class": "Cases", "method": "ok", "doc": "Do."}
    line = json.dumps({"target": 1, "methods": [good, "ITEM", {"class": "C", "method": "ITEM"}]})
    answer = discovered(line.replace('"ITEM"', item), TARGET)
    methods = answer["methods"]
    assert methods[0] == good
    assert all(isinstance(text, str) for method in methods for text in method.values())


@given(st.text() | values.map(json.dumps))
@fuzzed
def test_any_answer_of_a_service_is_used_or_refused(answer: str) -> None:
    assert discovered(answer, TARGET)["target"] == TARGET
    for read in (worker_words.description, worker_words.flags_error):
        with contextlib.suppress(Wrong, Refused):
            read(answer)
    with contextlib.suppress(Wrong, Refused):
        told = worker_words.uploads(answer, ["a.b"])
        assert [one["method"] for one in told] == ["a.b"]


# Whole runs: benchmarks that write over what their own worker has written.

NASTY = r"""
import atexit, json
from pathlib import Path

def order():
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    return json.loads(Path(os.fsdecode(words[2])).read_text())

class Nasty(Benchmark):
    def _leaves(self, name, content):
        path = Path(os.environ["PERFRUN_SERIES_DIR"], name)
        def write():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        atexit.register(write)
        self.report_benchmark(wall_time=1.0)

    def types(self):
        self._leaves("outcome.json", b'{"complete": 1, "phase": [], "error": 7, "notes": 3}')
    def digits(self):
        self._leaves("outcome.json", b'{"complete": true, "timestamp": ' + b"7" * 400 + b"}")
    def nested(self):
        self._leaves("outcome.json", b'{"phases": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    def memory(self):
        self._leaves("outcome.json", b'{"complete": true, "memory": [1], "resources": "x"}')
    def nothing(self):
        self._leaves("outcome.json", b"")
    def series(self):
        self._leaves("series_1.json", b'{"statistics": {"count": "many"}, "name": null}')
    def cut(self):
        self._leaves("series_1.json", b'{"name": "x", "items_per_step": [], "item": 1}')
    def rows(self):
        self.measure(lambda: None, name="rows", max_time_s=0.01)
        self._leaves("series_1.rows", b"\xff" * 3200)
    def report(self):
        self._leaves("../proto_2_x", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    def surrogate(self):
        raise ValueError("\ud800" * 100_000)
    def zz_after(self):
        self.report_benchmark(wall_time=1.0)
"""


def test_each_trial_has_a_summary_and_the_run_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(NASTY)
    done = world.run("--format=json", methods="pkg.cases.Nasty.filter:.*")
    assert done.code == 1, done.stderr
    statuses = {result["name"].rpartition(".")[2]: result["status"] for result in done.results}
    failed = ("digits", "nested", "nothing", "surrogate", "types")
    assert statuses == {
        **dict.fromkeys(("cut", "memory", "report", "rows", "series", "zz_after"), "passed"),
        **dict.fromkeys(failed, "failed"),
    }
    assert len(done.summaries()) == 11
    for document in done.summaries():
        schemas.check("summary", document)
    assert "internal error" not in done.stderr


def test_a_module_that_answers_for_its_worker_is_an_error_of_one_line(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(NASTY)
    answers = {
        "list": "[1, 2]", "number": "9" * 400, "deep": "[" * 5000, "text": "perfrun: passed",
        "types": '{"methods": [{"class": 1, "method": [], "doc": {}}], "inside": 3}',
        "many": "{}\\n" * 5000,
    }  # fmt: skip
    for name, answer in answers.items():
        world.write(
            f"from pkg.cases import order\n"
            f"open(order()['answer'], 'w').write('{answer}')\nos._exit(0)\n",
            module=name,
        )
    found = world.run("list", "--format=json", "pkg")
    assert (found.code, found.stderr) == (1, "")
    told = {one["module"]: one["error"] for one in json.loads(found.stdout)["errors"]}
    assert "the worker's answer cannot be used: " in told["pkg.cases"]  # by `many`, or its own
    filtered = world.run("--benchmark_methods=pkg.list.A.filter:.*")
    assert filtered.code == 2
    assert filtered.stderr == (
        "perfrun: --benchmark_methods: 'pkg.list.A.filter:.*': the worker's answer cannot be used: "
        "is a list, not an object\n"
    )
