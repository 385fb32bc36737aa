"""The summary against PerfZero's own files, for the same inputs: same keys, order and types."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import exits
import pytest

from perfrun.options.command_line import parse
from perfrun.probes.accelerators import Accelerators
from perfrun.probes.machine import Machine
from perfrun.run.outcome import read_leftovers
from perfrun.summary.assemble import RunFacts, TrialFacts, build_summary, out_of_bounds
from perfrun.summary.cpu import bring_together
from perfrun.summary.document import Environment, Metric, Outcome, Report, Status, to_json
from perfrun.worker.test_log import encode_entry

GOLDEN = Path(__file__).parents[2] / "data" / "perfzero"
GOLDEN_FILES = sorted(path.name for path in GOLDEN.glob("*.json"))

# Everywhere our document differs from PerfZero's for the same inputs, and why. The tests fail for a
# difference that is not here, and for one here that does not exist any more.
DELIBERATE_DIFFERENCES = {
    "benchmark_info.harness_name": "it is another harness, and says so",
    "process_info.max_rss": "PerfZero misses methods shorter than a second; the kernel does not",
    "process_info.max_vms": "as max_rss",
    "process_info.max_cpu_percent": "as max_rss",
    "process_info.user_cpu_time (more)": "PerfZero does not have it; a number, as readers expect",
    "process_info.system_cpu_time (more)": "as user_cpu_time",
    "perfrun (more)": "everything that PerfZero has no place for",
}

RECORD = {"memory": {"end": {"peak_rss_bytes": 500_000_000, "peak_vms_bytes": 900_000_000}}}
ENDED = replace(exits.ENDED, user_cpu_s=1.25, max_rss_bytes=0)
MEASURED = bring_together(RECORD, ENDED, None, own_peak_rss_bytes=0)
UNMEASURED = bring_together({}, None, None, own_peak_rss_bytes=0)


def golden(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GOLDEN / name).read_text(encoding="utf-8"))
    return document


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


def on_disk(document: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(to_json(document), parse_constant=refuse)
    return read


def run_facts(document: dict[str, Any], *more_flags: str) -> RunFacts:
    """The run that PerfZero was asked for, by its own command line."""
    flags = document["benchmark_info"]["flags"]
    system = document["system_info"]
    plan = parse(
        [
            "--gcloud_key_file_url=",
            f"--git_repos={flags['git_repos']}",
            f"--python_path={flags['python_path']}",
            f"--workspace={flags['workspace']}",
            f"--benchmark_num_trials={flags['benchmark_num_trials']}",
            *(f"--benchmark_methods={method}" for method in flags["benchmark_methods"]),
            *more_flags,
        ]
    )
    return RunFacts(
        plan=plan,
        run_id="run",
        machine=Machine(
            cpu_model=system["cpu_model"],
            physical_cpu_count=system["physical_cpu_count"],
            logical_cpu_count=system["logical_cpu_count"],
            cpu_socket_count=system["cpu_socket_count"],
            hostname=system["hostname"],
            accelerators=None,
            usable_cpu_count=2,
            memory_bytes=2**34,
            kernel="6.1",
            operating_system="Debian",
            architecture="x86_64",
            cgroup_memory_limit_bytes=None,
            cgroup_cpu_limit=None,
            user="u",
            frequency_governor=None,
        ),
        environment=Environment(),
        harness_info=document["benchmark_info"]["harness_info"],
        env_vars={},
        setup_info={},
        checkouts=tuple(
            {
                "directory": name,
                "url": info["url"],
                "branch": info["branch"],
                "git_hash": info["hash"],
            }
            for name, info in document["benchmark_info"]["site_package_info"].items()
        ),
    )


def trial_facts(document: dict[str, Any], folder: Path) -> TrialFacts:
    """The trial that PerfZero saw: what it reported goes through a real test_log file."""
    result = document["benchmark_result"]
    failed = document["benchmark_info"]["has_exception"]
    if not failed:
        entry = encode_entry(
            "Cases.method",
            wall_time=result["wall_time"],
            extras={extra["name"]: extra["value"] for extra in result["extras"]},
            metrics=result["metrics"],
        )
        (folder / "proto_Cases.method").write_bytes(entry)
    reports = read_leftovers(folder, folder).reports
    status = Status.FAILED if failed else Status.PASSED
    if out_of_bounds(reports):
        status = Status.OUT_OF_BOUNDS
    return TrialFacts(
        name=result["name"],
        trial_id=result["trial_id"],
        execution_id=document["execution_id"],
        timestamp=document["execution_timestamp"],
        outcome=Outcome(status=status),
        measured=MEASURED,
        reports=reports,
        framework=document["ml_framework_info"],
    )


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Name every place where `ours` is not exactly `theirs`: keys, order, types and values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if [key for key in ours if key in theirs] != list(theirs):
            yield f"{path} (keys or their order)"
        for key in ours:
            inner = f"{path}.{key}".lstrip(".")
            if key not in theirs:
                yield f"{inner} (more)"
            else:
                yield from differences(theirs[key], ours[key], inner)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif type(theirs) is not type(ours) or theirs != ours:
        yield path


@pytest.mark.parametrize("name", GOLDEN_FILES)
def test_the_document_is_perfzeros_but_for_the_listed_differences(
    name: str, tmp_path: Path
) -> None:
    theirs = golden(name)
    ours = on_disk(build_summary(run_facts(theirs), trial_facts(theirs, tmp_path)))
    assert set(differences(theirs, ours)) - set(DELIBERATE_DIFFERENCES) == set()


def test_every_listed_difference_still_exists(tmp_path: Path) -> None:
    found: set[str] = set()
    for name in GOLDEN_FILES:
        folder = tmp_path / name
        folder.mkdir()
        theirs = golden(name)
        ours = on_disk(build_summary(run_facts(theirs), trial_facts(theirs, folder)))
        found |= set(differences(theirs, ours))
    assert found == set(DELIBERATE_DIFFERENCES)


def test_the_golden_files_cover_each_outcome_that_perfzero_knows() -> None:
    results = [golden(name) for name in GOLDEN_FILES]
    assert {r["benchmark_result"]["succeeded"] for r in results} == {True, False}
    assert {r["benchmark_info"]["has_exception"] for r in results} == {True, False}
    assert any(r["benchmark_result"]["metrics"] for r in results)


def test_the_comparison_itself_sees_order_types_and_values() -> None:
    assert list(differences({"a": 1, "b": 2}, {"b": 2, "a": 1})) == [" (keys or their order)"]
    assert list(differences({"a": [1]}, {"a": [1.0]})) == ["a[0]"]
    assert list(differences({"a": {"b": 1}}, {"a": {}})) == ["a (keys or their order)"]
    assert list(differences({"a": [1]}, {"a": [1, 2]})) == ["a"]
    assert list(differences({"a": 1}, {"a": True})) == ["a"]


@pytest.fixture
def run() -> RunFacts:
    return run_facts(golden("ok.json"))


@pytest.fixture
def trial(tmp_path: Path) -> TrialFacts:
    return trial_facts(golden("ok.json"), tmp_path)


def test_a_metric_whose_value_is_zero_has_its_value_last(tmp_path: Path, run: RunFacts) -> None:
    metrics = [
        {"name": "zero", "value": 0.0, "min_value": 0.0, "max_value": 1.0},
        {"name": "", "value": 2.0, "max_value": 3.0},
        {"name": "plain", "value": 1.0, "min_value": 0.0},
    ]
    (tmp_path / "proto_C.m").write_bytes(encode_entry("C.m", metrics=metrics))
    reports = read_leftovers(tmp_path, tmp_path).reports
    facts = TrialFacts(
        name="m.C.m",
        trial_id=1,
        execution_id="e",
        timestamp=1.0,
        outcome=Outcome(status=Status.PASSED),
        measured=UNMEASURED,
        reports=reports,
    )
    written = on_disk(build_summary(run, facts))["benchmark_result"]["metrics"]
    assert [list(metric) for metric in written] == [
        ["name", "min_value", "max_value", "value"],
        ["value", "max_value", "name"],
        ["name", "value", "min_value"],
    ]
    assert written == metrics


def test_numbers_that_are_not_finite_are_perfzeros_strings(
    run: RunFacts, trial: TrialFacts
) -> None:
    report = Report(
        name="C.m",
        wall_time=math.inf,
        extras=({"name": "e", "value": -math.inf},),
        metrics=(Metric(name="m", value=math.nan),),
    )
    result = on_disk(build_summary(run, replace(trial, reports=(report,))))["benchmark_result"]
    assert result["wall_time"] == "Infinity"
    assert result["extras"] == [{"name": "e", "value": "-Infinity"}]
    assert result["metrics"] == [{"name": "m", "value": "NaN"}]


@pytest.mark.parametrize("status", list(Status))
def test_each_outcome_has_perfzeros_three_marks(
    run: RunFacts, trial: TrialFacts, status: Status
) -> None:
    document = on_disk(build_summary(run, replace(trial, outcome=Outcome(status=status))))
    result = document["benchmark_result"]
    assert result["succeeded"] is (status is Status.PASSED)
    assert document["benchmark_info"]["has_exception"] is not status.ran
    assert document["perfrun"]["outcome"]["status"] == status.value
    if status.ran:
        assert result["wall_time"] == 1.5
    else:  # PerfZero throws a report away when an exception follows; so do its keys here
        assert (result["wall_time"], result["extras"], result["metrics"]) == (-1, [], [])
        assert document["perfrun"]["reports"][0]["wall_time"] == 1.5
        assert document["perfrun"]["reports"][0]["metrics"][0]["in_bounds"] is True


def test_without_a_report_the_wall_time_is_the_documented_minus_one(
    run: RunFacts, trial: TrialFacts
) -> None:
    result = on_disk(build_summary(run, replace(trial, reports=())))["benchmark_result"]
    assert result["wall_time"] == -1
    assert result["succeeded"] is True


def test_the_first_report_is_the_result_and_all_are_kept(run: RunFacts, trial: TrialFacts) -> None:
    reports = tuple(Report(name=f"C.{n}", wall_time=float(n)) for n in (3, 1, 2))
    document = on_disk(build_summary(run, replace(trial, reports=reports)))
    assert document["benchmark_result"]["wall_time"] == 3.0
    assert [report["name"] for report in document["perfrun"]["reports"]] == ["C.3", "C.1", "C.2"]


def test_what_is_unknown_is_left_out_of_the_numbers_that_a_reader_sums(
    run: RunFacts, trial: TrialFacts
) -> None:
    document = on_disk(build_summary(run, replace(trial, measured=UNMEASURED)))
    assert document["process_info"] == {}
    whole = on_disk(build_summary(run, trial))["process_info"]
    assert list(whole)[:3] == ["max_rss", "max_vms", "max_cpu_percent"]
    assert all(type(value) in (int, float) for value in whole.values())


def test_labels_and_devices_stand_where_perfzero_puts_them(
    trial: TrialFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = run_facts(
        golden("ok.json"),
        "--execution_label=night",
        "--ml_framework_build_label=b1",
        "--platform_name=p",
        "--system_name=s",
    )
    devices = Accelerators(
        model="H200", count=2, driver_version="570", models=("H200",) * 2, memory_bytes=(1, 1)
    )
    run = replace(
        base,
        machine=replace(base.machine, accelerators=devices),
        env_vars={"PERFZERO_X": "1"},
        setup_info={"image": "i"},
    )
    document = on_disk(build_summary(run, trial))
    assert list(document["benchmark_info"]) == [
        "harness_name",
        "harness_info",
        "has_exception",
        "execution_label",
        "env_vars",
        "flags",
        "site_package_info",
    ]
    assert document["benchmark_info"]["env_vars"] == {"PERFZERO_X": "1"}
    assert list(document["ml_framework_info"]) == [
        "name",
        "version",
        "build_version",
        "build_label",
    ]
    assert list(document["system_info"]) == [
        "platform_name",
        "system_name",
        "accelerator_driver_version",
        "accelerator_model",
        "accelerator_count",
        "cpu_model",
        "physical_cpu_count",
        "logical_cpu_count",
        "cpu_socket_count",
        "hostname",
    ]
    assert document["system_info"]["accelerator_count"] == 2
    assert document["setup_info"] == {"image": "i"}


def test_without_a_framework_its_name_is_none_and_the_rest_unknown(
    run: RunFacts, trial: TrialFacts
) -> None:
    document = on_disk(build_summary(run, replace(trial, framework=None)))
    assert document["ml_framework_info"] == {
        "name": "none",
        "version": None,
        "build_version": None,
    }


def test_the_metrics_out_of_bounds_are_named_with_their_bounds() -> None:
    reports = (
        Report(name="C.a", metrics=(Metric(name="ok", value=1.0),)),
        Report(
            name="C.b",
            metrics=(
                Metric(name="low", value=0.5, min_value=0.75),
                Metric(name="high", value=2.0, min_value=0.0, max_value=1.0),
            ),
        ),
    )
    assert out_of_bounds(reports[:1]) is None
    assert out_of_bounds(reports) == "low = 0.5 is not in [0.75, inf]; high = 2 is not in [0, 1]"
