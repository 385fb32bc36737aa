"""Results of other tools, as those tools have written them (tests/data/foreign)."""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import schemas

from perfrun.benchmark import main
from perfrun.compare.selection import read_folder
from perfrun.exchange.foreign import ForeignError, Source
from perfrun.exchange.summaries import Origin, documents_of
from perfrun.summary.document import to_json
from perfrun.summary.record import SummaryRecord, record_of

FILES = Path(__file__).resolve().parents[2] / "data" / "foreign"
SAMPLES = {
    "asv": FILES / "asv",
    "bmf": FILES / "bmf.json",
    "google-benchmark": FILES / "google-benchmark.json",
    "pyperf": FILES / "pyperf.json",
    "pytest-benchmark": FILES / "pytest-benchmark.json",
}


def imported(workspace: Path, form: str, path: Path, *words: str) -> dict[str, list[SummaryRecord]]:
    """Import a file; return the records by method."""
    argv = ["import", f"--format={form}", f"--workspace={workspace}", *words, str(path)]
    assert main(argv) == 0
    found: dict[str, list[SummaryRecord]] = {}
    for record in read_folder(workspace, pytest.fail):
        schemas.check("summary", record.document)
        found.setdefault(record.method, []).append(record)
    return found


def facts(record: SummaryRecord) -> dict[str, tuple[float, str, str]]:
    return {n: (m.value, m.unit, m.direction) for n, m in record.metrics.items()}


def edited(tmp_path: Path, form: str, change: Callable[[Any], Any]) -> Path:
    """Return a copy of a sample in which something is changed."""
    source = SAMPLES[form]
    if source.is_dir():
        source = next(source.glob("*/*-existing*.json"))
    document = json.loads(source.read_text())
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(change(document) or document))
    return path


def test_a_process_of_pyperf_is_a_trial_with_its_samples(tmp_path: Path) -> None:
    found = imported(tmp_path, "pyperf", SAMPLES["pyperf"], "--label=night")
    assert {name: len(trials) for name, trials in found.items()} == {"toy.join": 3, "toy.sort": 3}
    first = min(found["toy.sort"], key=lambda one: one.timestamp)
    assert first.trial_id == 1
    assert len({one.run_id for trials in found.values() for one in trials}) == 1
    assert (first.label, first.subject.environment, first.hostname) == (
        "night",
        "pyperf python3.11",
        "host",
    )
    (series,) = first.document["perfrun"]["series"]
    assert (len(series["times_s"]), series["block_size"]) == (4, 512)
    assert first.values["wall_time"] == pytest.approx(3.5409956e-06)
    assert first.primaries == ("wall_time", "peak_rss_bytes")
    assert facts(first)["latency_max_s"] == (series["statistics"]["max_s"], "s", "lower")


def test_a_benchmark_of_pytest_keeps_rounds_commit_and_numbers(tmp_path: Path) -> None:
    found = imported(tmp_path, "pytest-benchmark", SAMPLES["pytest-benchmark"])
    (trial,) = found["test_toy.py::test_sort[10]"]
    assert trial.values["items"] == 10
    assert trial.commits == {"gtoy": "981a7c107d73c9c715b67e6845db5f9823cc008b"}
    (series,) = trial.document["perfrun"]["series"]
    assert (len(series["times_s"]), series["block_size"]) == (7, 3)
    assert "2 threads" in trial.subject.hardware
    (join,) = found["test_toy.py::test_join"]
    assert join.extras == {"group": "text"}


def test_repetitions_of_google_benchmark_are_samples_and_errors_are_failures(
    tmp_path: Path,
) -> None:
    found = imported(tmp_path, "google-benchmark", SAMPLES["google-benchmark"])
    (sort,) = found["toy/sort/min_time:0.020/repeats:3"]
    (series,) = sort.document["perfrun"]["series"]
    assert len(series["times_s"]) == 3
    assert series["times_s"][0] < 1e-4  # nanoseconds in the file
    assert facts(sort)["items_per_second"][1:] == ("1/s", "higher")
    assert "items_per_second" in sort.derived("wall_time")
    (join,) = found["join/8/min_time:0.020"]
    assert join.values["letters"] == 8
    (broken,) = found["broken"]
    assert (broken.status, broken.reason) == ("failed", "no such thing")
    assert not broken.metrics


def test_parameters_kinds_and_failures_of_asv_are_kept(tmp_path: Path) -> None:
    found = imported(tmp_path, "asv", SAMPLES["asv"])
    name = "bench_toy.Sorting"
    assert sorted(found) == sorted(
        [
            *(f"{name}.{what}(1000, '{kind}')" for what in KINDS for kind in ("list", "tuple")),
            *(f"{name}.{what}(10, 'list')" for what in KINDS),  # a tuple of 10 skips itself
            "bench_toy.peakmem_list",
            "bench_toy.time_fails",
        ]
    )
    (time,) = found[f"{name}.time_sort(1000, 'list')"]
    assert time.document["perfrun"]["series"][0]["times_s"] == [time.values["wall_time"]]
    assert len(time.subject.source) == 64
    assert time.subject.settings == "--environment=existing-py_opt_venv_bin_python3"
    assert list(time.commits.values()) == ["0c70f37cae7edb02bcb5726dff49bbca1db1a8eb"]
    (length,) = found[f"{name}.track_length(1000, 'tuple')"]
    assert facts(length) == {"tracked": (1000, "items", "lower")}
    (peak,) = found["bench_toy.peakmem_list"]
    assert facts(peak) == {"peak_memory_bytes": (24821760, "bytes", "lower")}
    assert not found["bench_toy.time_fails"][0].ran


NO_COMMIT = (
    "toy binary: asv keeps results by commit, and this one has none, or has several checkouts; "
    "name one with --checkout=NAME"
)
KINDS = ("mem_data", "time_sort", "track_length")


def test_measures_of_bencher_get_their_units_and_the_time_that_is_given(tmp_path: Path) -> None:
    found = imported(tmp_path, "bmf", SAMPLES["bmf"], "--time=2026-11-22T10:00:00+00:00")
    (sort,), (serve,) = found["toy::sort"], found["toy::serve"]
    assert sort.timestamp == 1795341600.0
    assert sort.values["wall_time"] == pytest.approx(3540e-9)
    assert sort.extras == {"latency bounds": "lower 3500.5, upper 3600"}
    assert facts(serve)["throughput"] == (1200, "1/s", "higher")


@pytest.mark.parametrize("form", SAMPLES)
def test_what_was_imported_is_known_compared_and_in_the_index(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = sum(map(len, imported(tmp_path, form, SAMPLES[form], "--label=a").values()))
    again = imported(tmp_path, form, SAMPLES[form], "--label=b")
    assert sum(map(len, again.values())) == count
    assert f"; {count} had been imported before" in capsys.readouterr().out
    assert main(["index", f"--workspace={tmp_path}", "--format=json"]) == 0
    held = json.loads(capsys.readouterr().out)
    assert (held["trials"], held["bad_files"]) == (count, [])
    own = next(iter(again.values()))[0].document["perfrun"]["imported"]
    assert own["format"] == form
    assert not list(tmp_path.glob(".import-*"))


@pytest.mark.parametrize("form", SAMPLES)
def test_a_round_trip_keeps_names_times_and_figures(form: str, tmp_path: Path) -> None:
    first = imported(tmp_path / "a", form, SAMPLES[form])
    there = tmp_path / "out"
    words = ["export", f"--format={form}", f"--workspace={tmp_path / 'a'}"]
    assert main([*words, f"--output={there}"]) == 0
    second = imported(tmp_path / "b", form, there)
    ran = {name: trials for name, trials in first.items() if trials[0].ran}
    if form == "pyperf":
        assert [len(trials) for trials in second.values()] == [3, 3]
    assert set(second) == set(ran)
    for name, trials in ran.items():
        for key, value in trials[0].values.items():
            now = sorted(one.values[key] for one in second[name] if key in one.values)
            then = sorted(one.values[key] for one in trials)
            assert now == pytest.approx(then, rel=1e-12), (name, key, value)


def test_an_export_is_a_new_file_and_names_its_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(tmp_path, "bmf", SAMPLES["bmf"])
    words = ["export", f"--workspace={tmp_path}"]
    out = tmp_path / "out.json"
    assert main([*words, "--format=bmf", "--methods=toy::s*", f"--output={out}"]) == 0
    assert sorted(json.loads(out.read_text())) == ["toy::serve", "toy::sort"]
    assert main([*words, "--format=bmf", f"--output={out}"]) == 2
    assert main([*words, "--format=asv", f"--output={tmp_path / 'asv'}"]) == 2
    assert main([*words, "--format=asv"]) == 2
    assert main([*words, "--format=bmf", "--methods=none"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2].partition(str(tmp_path))[0] for line in lines] == [
        "--output=",
        NO_COMMIT,
        "asv has several files; name a folder with --output=DIR",
        "no trial of these results has ended by itself",
    ]


def _put(*keys: Any, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


_SORT = "bench_toy.Sorting.time_sort"
HOSTILE = [
    ("pytest-benchmark", _put("benchmarks", 1, "stats", "median", value=math.nan),
     "benchmarks[1].stats.median is nan, not a finite number"),
    ("pytest-benchmark", _put("benchmarks", 1, "stats", "median", value="1"),
     "benchmarks[1].stats.median: expected float, got str"),
    ("pytest-benchmark", _put("benchmarks", 1, "stats", "median", value=10**400),
     "benchmarks[1].stats.median"),
    ("pytest-benchmark", _put("benchmarks", 1, "stats", "median", value=-1),
     "benchmarks[1].stats.median is -1.0, less than 0"),
    ("pytest-benchmark", _put("benchmarks", 1, "fullname", value="test_toy.py::test_sort[10]"),
     "benchmarks[1].fullname is there twice: test_toy.py::test_sort[10]"),
    ("pytest-benchmark", _put("benchmarks", 0, "fullname", value="a\x1b[2Jb"),
     "benchmarks[0].fullname has characters that cannot be printed: 'a\\x1b[2Jb'"),
    ("pytest-benchmark", _put("datetime", value="tomorrow"), "datetime is 'tomorrow', not a time"),
    ("pytest-benchmark", _put("datetime", value="9999-12-31T23:59:59"), "not a time"),
    ("pyperf", _put("benchmarks", 0, "metadata", "name", value="\ud800"),
     "benchmarks[0].metadata.name has characters that cannot be printed: '\\ud800'"),
    ("pyperf", _put("version", value="7"), "version is '7'; this perfrun reads 1.0"),
    ("pyperf", _put("benchmarks", 0, "runs", 1, "values", value=[1e-3, math.inf]),
     "benchmarks[0].runs[1].values[1] is inf, not a finite number"),
    ("pyperf", _put("benchmarks", 0, "runs", 1, "metadata", "unit", value="yard"),
     "benchmarks[0].runs[1]: unit is none of second, byte, integer: 'yard'"),
    ("pyperf", _put("benchmarks", 0, "runs", 1, "metadata", "unit", value={"second": 1}),
     "benchmarks[0].runs[1]: unit is none of second, byte, integer: {'second': 1}"),
    ("pyperf", _put("benchmarks", 0, "runs", 1, "values", 0, value="\ud800"),
     "has half of a character (a lone surrogate) in it"),
    ("google-benchmark", _put("benchmarks", 0, "time_unit", value=["ns"]),
     "benchmarks[0].time_unit is none of ns, us, ms, s"),
    ("google-benchmark", _put("benchmarks", 0, value=7), "benchmarks[0] is no object"),
    ("google-benchmark", _put("benchmarks", 1, "repetition_index", value=0),
     "is there twice, not as a repetition"),
    ("google-benchmark", _put("benchmarks", value={}), "is JSON, but not of Google Benchmark"),
    ("asv", _put("results", _SORT, 0, value=[1.0]),
     f"results: {_SORT}.result is no list with a value for each combination"),
    ("asv", _put("results", _SORT, 1, value=[["a"] * 40] * 9), "more than 10,000 combinations"),
    ("asv", _put("results", _SORT, 0, 0, value=math.inf), "result[0] is inf, not a finite number"),
    ("asv", _put("results", "other", value=[[1], []]), "results: other is of no kind"),
    ("asv", _put("commit_hash", value="../../../etc"), "commit_hash is no hash of a commit"),
    ("bmf", _put("toy::sort", "latency", "value", value=None),
     "[...].value: expected float, got null"),
    ("bmf", _put("", value={"latency": {"value": 1}}), "a benchmark's name is empty"),
    ("bmf", _put("x" * 2000, value={}), "a benchmark's name is longer than 1000 characters"),
    ("bmf", lambda _: ["x"], "the file: expected object, got array"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "change", "message"), HOSTILE)
def test_what_is_wrong_is_one_line_with_file_and_place_and_nothing_is_written(
    form: str,
    change: Callable[[Any], Any],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = edited(tmp_path, form, change)
    workspace = tmp_path / "workspace"
    good = SAMPLES[form]  # it stands before the bad one, and nothing of it may be written
    argv = ["import", f"--format={form}", f"--workspace={workspace}", str(good), str(path)]
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"perfrun: {path}: ")
    assert message in line
    assert not workspace.exists()


WRONG = (
    *(None, True, -1, 0, 1e308, -1e308, 10**400, math.nan, math.inf, 2**63, "", "\ud800", "a\nb"),
    *([], {}, [[]], [1], {"a": 1}, "2026", "0001-01-01T00:00:00"),
)


@pytest.mark.parametrize("form", SAMPLES)
def test_any_wrong_value_gives_records_or_one_line(form: str) -> None:
    path = next(SAMPLES[form].glob("*/0c*")) if form == "asv" else SAMPLES[form]
    text, pick = path.read_text(), random.Random(form)
    places = _places(json.loads(text))
    read = import_module(f"perfrun.exchange.{form.replace('-', '_')}").read
    for _ in range(300):
        document = json.loads(text)
        _put(*pick.choice(places), value=pick.choice(WRONG))(document)
        with contextlib.suppress(ForeignError):
            source = Source(path, json.dumps(document).encode(), 1.7e9)
            origin = Origin(format=form, file="f", sha256=source.sha256, modified=1.7e9)
            for made in documents_of(read(source), origin, None, None).values():
                record_of(json.loads(to_json(made)), Path())


def _places(part: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values of a document."""
    pairs = part.items() if isinstance(part, dict) else enumerate(part)
    found = []
    for key, value in pairs:
        found.append((*above, key))
        if isinstance(value, dict | list):
            found += _places(value, (*above, key))
    return found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b'{"a": ', "is not JSON, or cut short"),
        (b"\xff\xfe{", "is not UTF-8 text"),
        (b"[" * 200_000, "is JSON nested too deep"),
        (b'{"a": {"latency": {"value": 1, "value": 2}}}', "an object has the key 'value' twice"),
        (b'{"a": {"latency": {"value": ' + b"9" * 5000 + b"}}}", "is not JSON"),
        (b"{}", "there is no result in it"),
    ],
)
def test_a_file_that_is_no_result_is_one_line(
    content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert main(["import", "--format=bmf", f"--workspace={tmp_path / 'w'}", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"perfrun: {path}: {message}")
    assert not (tmp_path / "w").exists()


def test_only_regular_files_of_a_bounded_size_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    machine = tmp_path / "results" / "host"
    machine.mkdir(parents=True)
    (machine / "link.json").symlink_to("/etc/passwd")
    for form, name in (("bmf", "pipe"), ("bmf", "large"), ("bmf", "gone"), ("asv", "results")):
        assert main(["import", f"--format={form}", str(tmp_path / name)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(f"{tmp_path}/")[2] for line in lines] == [
        "pipe: is no file",
        "large: is larger than 64 MiB",
        "gone: No such file or directory",
        "results/host/link.json: Too many levels of symbolic links",
    ]


def test_a_disk_that_fails_leaves_nothing_of_an_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "output").write_text("no folder")
    argv = ["import", "--format=bmf", f"--workspace={tmp_path}", str(SAMPLES["bmf"])]
    assert main(argv) == 2
    assert "nothing is imported" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["output"]
