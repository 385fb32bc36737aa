"""`tf.test.Benchmark` classes run unmodified, and PerfZero's own files are reproduced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gitrepos import make_repository
from worlds import Finished, World

from perfrun.worker.test_log import decode_entries, encode_entry

pytestmark = pytest.mark.tensorflow

GOLDEN = Path(__file__).resolve().parent.parent / "data" / "perfzero"
CASES = ("metric_below_min", "noop_report", "ok", "raises", "writes_output")
# The class that PerfZero measured for the golden files.
PZC = """
import os
import tensorflow as tf

class Cases(tf.test.Benchmark):
    def __init__(self, output_dir=None, root_data_dir=None, tpu=None):
        self.output_dir = output_dir

    def ok(self):
        self.report_benchmark(
            wall_time=1.5,
            extras={"note": "a string", "examples_per_second": 1000.5, "n": 3},
            metrics=[
                {"name": "acc", "value": 0.93, "min_value": 0.9, "max_value": 0.99},
                {"name": "startup_time", "value": 2.5},
                {"name": "zero", "value": 0.0, "min_value": 0.0},
            ],
        )

    def metric_below_min(self):
        metric = {"name": "acc", "value": 0.8, "min_value": 0.9, "max_value": 0.99}
        self.report_benchmark(wall_time=1.0, metrics=[metric])

    def noop_report(self):
        self.report_benchmark(wall_time=0.0)

    def raises(self):
        raise ValueError("on purpose")

    def writes_output(self):
        with open(os.path.join(self.output_dir, "model"), "w") as file:
            file.write("weights")
        self.report_benchmark(wall_time=1.0, extras={"output_dir": self.output_dir})
"""

# Where our document differs from PerfZero's on purpose: everything else has the same keys in the
# same order with values of the same type.
DIFFERENCES = {
    ("keys", "perfrun"): "all that PerfZero has no place for",
    ("keys", "process_info.max_tree_rss"): "numbers only: a known reader takes each value as one",
    ("keys", "process_info.user_cpu_time"): "as above",
    ("keys", "process_info.system_cpu_time"): "as above",
    ("keys", "process_info.max_tree_pss"): "as above",
    ("keys", "process_info.major_page_faults"): "as above",
    ("keys", "process_info.voluntary_context_switches"): "as above",
    ("keys", "process_info.involuntary_context_switches"): "as above",
    ("keys", "process_info.read_bytes"): "as above",
    ("keys", "process_info.written_bytes"): "as above",
    ("type", "process_info.max_cpu_percent"): "measured; PerfZero's is its untouched zero, an int",
    ("keys", "benchmark_info.flags.python"): "perfrun's own flags follow where they were given",
    ("keys", "benchmark_info.flags.format"): "as above",
    ("keys", "benchmark_info.flags.quiet"): "as above",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("tensorflow"))


@pytest.fixture(scope="module")
def pinned(world: World) -> tuple[str, str]:
    """A repository served over file:// whose first commit is the one to measure."""
    remote = world.folder / "remote" / "pzcases.git"
    files = {"pzc/__init__.py": "", "pzc/cases.py": PZC}
    commit, _ = make_repository(remote, [files, {"pzc/cases.py": "raise SystemExit('later')"}])
    return f"file://{remote}", commit


@pytest.fixture(scope="module")
def golden_run(world: World, pinned: tuple[str, str], tensorflow_python: str) -> Finished:
    """PerfZero's five golden cases in one run."""
    url, commit = pinned
    return world.run(
        f"--git_repos={url};main;{commit}",
        "--python_path=pzcases",
        f"--python={tensorflow_python}",
        "--format=json",
        "--quiet",
        methods=",".join(f"pzc.cases.Cases.{case}" for case in CASES),
    )


@pytest.fixture(params=CASES)
def pair(
    request: pytest.FixtureRequest, golden_run: Finished
) -> tuple[dict[str, Any], dict[str, Any]]:
    """PerfZero's document of a case and ours."""
    text = (GOLDEN / f"{request.param}.json").read_text(encoding="utf-8")
    return json.loads(text), golden_run.summaries()[CASES.index(request.param)]


def differences(theirs: Any, ours: Any, path: str = "") -> set[tuple[str, str]]:
    """Where keys, their order, or types are not the same."""
    if type(theirs) is not type(ours):
        return {("type", path)}
    found: set[tuple[str, str]] = set()
    if isinstance(theirs, dict):
        at = f"{path}." if path else ""
        found |= {("keys", f"{at}{key}") for key in theirs.keys() ^ ours.keys()}
        common = [key for key in theirs if key in ours]
        if [key for key in ours if key in theirs] != common:
            found.add(("order", path))
        if list(ours)[: len(common)] != common:
            found.add(("not at the end", path))
        for key in common:
            found |= differences(theirs[key], ours[key], f"{at}{key}")
    if isinstance(theirs, list):
        if len(theirs) != len(ours):
            found.add(("length", path))
        for number, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            found |= differences(one, other, f"{path}[{number}]")
    return found


def by_name(extras: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In one order: protobuf's map has none."""
    return sorted(extras, key=lambda extra: str(extra["name"]))


def test_the_run_ends_as_perfzeros_did(golden_run: Finished) -> None:
    assert golden_run.code == 1
    statuses = dict(zip(CASES, golden_run.statuses, strict=True))
    assert statuses == {
        "metric_below_min": "out_of_bounds",
        "noop_report": "passed",
        "ok": "passed",
        "raises": "failed",
        "writes_output": "passed",
    }


def test_a_document_has_perfzeros_keys_order_and_types(
    pair: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    theirs, ours = pair
    for document in (theirs, ours):
        document["benchmark_result"]["extras"] = by_name(document["benchmark_result"]["extras"])
        # As many as the call had; and not a git checkout everywhere the tests run.
        document["benchmark_info"]["flags"]["benchmark_methods"] = ["one"]
        document["benchmark_info"]["harness_info"] = {}
    assert differences(theirs, ours) == set(DIFFERENCES)


def test_what_was_measured_and_asked_for_has_perfzeros_values(
    pair: tuple[dict[str, Any], dict[str, Any]], world: World, pinned: tuple[str, str]
) -> None:
    theirs, ours = pair
    for document in (theirs, ours):
        document["benchmark_result"]["extras"] = [
            extra
            for extra in by_name(document["benchmark_result"]["extras"])
            if extra["name"] != "output_dir"
        ]
    assert ours["benchmark_result"] == theirs["benchmark_result"]
    for key in ("has_exception",):
        assert ours["benchmark_info"][key] == theirs["benchmark_info"][key]
    url, commit = pinned
    expected = {"url": url, "branch": "main", "hash": commit}
    assert ours["benchmark_info"]["site_package_info"] == {"pzcases": expected}
    flags, known = ours["benchmark_info"]["flags"], theirs["benchmark_info"]["flags"]
    changed = {
        "git_repos": f"{url};main;{commit}",
        "benchmark_methods": [",".join(f"pzc.cases.Cases.{case}" for case in CASES)],
        "workspace": str(world.workspace),
    }
    assert {key: flags[key] for key in known} == {**known, **changed}
    assert ours["ml_framework_info"]["name"] == "tensorflow"
    assert ours["setup_info"] == theirs["setup_info"] == {}


def test_a_document_is_written_as_perfzero_writes_it(golden_run: Finished) -> None:
    for result in golden_run.results:
        text = Path(result["summary"]).read_text(encoding="utf-8")
        assert text == json.dumps(json.loads(text), indent=2)


def test_the_folder_has_perfzeros_files(golden_run: Finished) -> None:
    folder = Path(golden_run.results[CASES.index("writes_output")]["summary"]).parent
    files = {path.name for path in folder.iterdir()}
    perfzero = {"perfzero_summary.json", "perfzero.log", "process_info.log", "model"}
    assert files >= {*perfzero, "proto_Cases.writes_output"}
    samples = [json.loads(line) for line in (folder / "process_info.log").read_text().splitlines()]
    assert samples
    for sample in samples:
        assert list(sample)[:4] == ["time", "rss", "vms", "cpu_percent"]


def test_memory_is_the_true_figure_of_a_process_with_tensorflow(golden_run: Finished) -> None:
    for document in golden_run.summaries():
        assert document["process_info"]["max_rss"] > 200 << 20
        assert document["process_info"]["max_tree_rss"] >= document["process_info"]["max_rss"]
        assert document["perfrun"]["memory"]["process_rss"]["exactness"] == "exact"


# Plain classes: --benchmark_class_type=tf_benchmark

PLAIN = """
import os
import tensorflow as tf

OURS = {ours!r}

class Plain(tf.test.Benchmark):
    def benchmark_several(self):
        self.report_benchmark(wall_time=1.0)
        self.report_benchmark(wall_time=2.0, name="second/part")
        self._helps()

    def _helps(self):
        self.report_benchmark(wall_time=3.0, iters=7, extras={{"caf\\xe9": "\\N{{SNOWMAN}}"}})

    def benchmark_bytes(self):
        from tensorflow.core.util import test_log_pb2
        with open(OURS, "rb") as file:
            entries = test_log_pb2.BenchmarkEntries.FromString(file.read())
        with open(os.path.join(self.output, "theirs"), "wb") as file:
            file.write(entries.SerializeToString(deterministic=True))
        self.report_benchmark(wall_time=entries.entry[0].wall_time, extras={{"text": str(entries)}})

    def __init__(self, note="none"):
        super().__init__()
        self.note = note

    @property
    def output(self):
        return os.path.dirname(os.environ["TEST_REPORT_FILE_PREFIX"])

class Cases(tf.test.Benchmark, metaclass=tf.__internal__.test.ParameterizedBenchmark):
    _benchmark_parameters = [("small.fast", 3.0), ("large.exact", 4.0)]

    def __init__(self, note="none"):
        super().__init__()
        self.note = note

    def benchmark_sum(self, value):
        total = tf.reduce_sum(tf.ones([4]))
        self.report_benchmark(wall_time=value, extras={{"note": self.note, "sum": float(total)}})
"""
METHODS = (
    "pkg.plain.Plain.benchmark_several",
    "pkg.plain.Plain.benchmark_bytes",
    "pkg.plain.Cases:benchmark_sum__small.fast",
    "pkg.plain.Cases.filter:benchmark_sum__large",
)
ENTRY: dict[str, Any] = {
    "iters": -(2**40),
    "cpu_time": 0.25,
    "wall_time": 1e-300,
    "throughput": float("inf"),
    "extras": {"number": -0.0, "text": "caf\xe9 \N{SNOWMAN}", "empty": ""},
    "metrics": [
        {"name": "all", "value": 1.5, "min_value": 0.0, "max_value": float("nan")},
        {"name": "zero", "value": 0.0, "min_value": -1.0},
        {"name": "", "value": 2.0},
    ],
}


@pytest.fixture(scope="module")
def plain_run(world: World, tensorflow_python: str) -> Finished:
    """Classes whose constructor takes no folder, with the profiler on."""
    ours = world.folder / "ours"
    ours.write_bytes(encode_entry("Class.method", **ENTRY))
    world.write(PLAIN.format(ours=str(ours)), module="plain")
    return world.run(
        "--benchmark_class_type=tf_benchmark",
        '--perfzero_constructor_args={"note": "given"}',
        "--profiler_enabled_time=0:1",
        f"--python={tensorflow_python}",
        "--format=json",
        methods=",".join(METHODS),
    )


def test_plain_tensorflow_classes_run_and_keep_every_report(plain_run: Finished) -> None:
    assert (plain_run.code, plain_run.statuses) == (0, ["passed"] * 4), plain_run.stderr
    several = plain_run.summaries()[0]
    assert several["benchmark_result"]["wall_time"] == 1.0
    reports = several["perfrun"]["reports"]
    assert [(r["name"], r["wall_time"], r["iters"]) for r in reports] == [
        ("Plain.benchmark_several", 1.0, 0),
        ("Plain.second/part", 2.0, 0),
        ("Plain.benchmark_several", 3.0, 7),
    ]
    assert reports[2]["extras"] == [{"name": "caf\xe9", "value": "\N{SNOWMAN}"}]


def test_parameterized_methods_with_a_dot_run_behind_a_colon_and_by_filter(
    plain_run: Finished,
) -> None:
    small, large = plain_run.summaries()[2:]
    assert small["benchmark_result"]["name"] == METHODS[2]
    assert large["benchmark_result"]["name"] == "pkg.plain.Cases:benchmark_sum__large.exact"
    for document, wall_time in ((small, 3.0), (large, 4.0)):
        assert document["benchmark_result"]["wall_time"] == wall_time
        extras = by_name(document["benchmark_result"]["extras"])
        assert [extra["value"] for extra in extras] == ["given", 4.0]


def test_the_framework_is_recorded(plain_run: Finished, golden_run: Finished) -> None:
    versions = plain_run.summaries()[0]["perfrun"]["environment"]["distributions"]
    installed = {versions.get(name) for name in ("tensorflow", "tensorflow-cpu")}
    for document in (*plain_run.summaries(), *golden_run.summaries()):
        info = document["ml_framework_info"]
        assert list(info) == ["name", "version", "build_version"]
        assert info["version"] in installed
        assert info["build_version"].startswith("v")


def test_tensorflow_reads_our_bytes_and_we_read_tensorflows(plain_run: Finished) -> None:
    document = plain_run.summaries()[1]
    assert document["benchmark_result"]["wall_time"] == 1e-300
    text = document["benchmark_result"]["extras"][0]["value"]
    assert "iters: -1099511627776" in text
    assert text.count("metrics {") == 3
    folder = Path(plain_run.results[1]["summary"]).parent
    [theirs] = decode_entries((folder / "theirs").read_bytes())
    [ours] = decode_entries(encode_entry("Class.method", **ENTRY))
    for entry in (theirs, ours):
        entry["extras"] = by_name(list(entry["extras"]))
    assert repr(theirs) == repr(ours)  # as text: NaN is not equal to itself, 0.0 is to -0.0


def test_the_profiler_leaves_its_data_for_the_time_asked_for(plain_run: Finished) -> None:
    for result in plain_run.results:
        folder = Path(result["summary"]).parent / "profiler_data"
        assert [path for path in folder.rglob("*") if path.is_file()]
