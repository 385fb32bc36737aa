"""One summary through every command: they name the same metrics, and count a slowdown once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perfrun.options.store_address import parse_address
from perfrun.store.index import open_store
from perfrun.summary.record import SummaryRecord, read_record
from tests.gitrepos import make_repository
from tests.worlds import World, strict, written_here

# The machine may be busy: the clock that `measure` reads goes on by what the commit says. What is
# tested is what perfrun makes of it.
SOURCE = """
import random
from perfrun import Benchmark
from perfrun.worker.measure import loop
from bench.settings import STEP_S


class Cases(Benchmark):
    def step(self):
        now_ns, calls = [0], [0]
        step_s = STEP_S * (1 + random.random() * 0.006)

        def run():
            calls[0] += 1
            now_ns[0] += int(1e9 * (step_s if calls[0] > 1 else 0.5))

        loop._clock = lambda: now_ns[0]
        self.measure(
            run,
            iterations=30,
            warmup=2,
            items_per_step=32,
            item="image",
            metrics=[{"name": "latency_mean_s", "value": 7.0}, {"name": "acc", "value": 0.9}],
        )
"""
STEP = "bench.cases.Cases.step"
NIGHTS, CHANGE = 50, 40
PRIMARY = {"wall_time", "first_call_s", "latency_mean_s", "acc", "peak_rss_bytes"}
DERIVED = {
    *("throughput", "images_per_second", "images_per_second_per_device", "warmup_s"),
    *(f"latency_{name}_s" for name in ("median", "median_low", "median_high", "p50", "p90")),
    *("latency_min_s", "latency_max_s", "latency_std_s", "images_per_second_std"),
}
# All steps of a trial take equally long here, and there is no ratio to a deviation of 0.
COMPARED = DERIVED - {"latency_std_s", "images_per_second_std"}


@dataclass(frozen=True)
class Place:
    """Real trials of two commits, of which the second takes half as long again, as 50 nights."""

    world: World
    hashes: list[str]
    real: list[Path]  # a summary of each commit

    @property
    def record(self) -> SummaryRecord:
        return read_record(self.real[0])

    @property
    def repository(self) -> str:
        return (self.world.folder / "repo").as_uri()

    def run(self, command: str, *words: str, allowed: tuple[int, ...] = (0, 1)) -> Any:
        place = f"--workspace={self.world.workspace}"
        line = [self.world.python, self.world.entry, command, place, "--format=json", *words]
        done = self.world.run_words(line)
        assert done.code in allowed, done.stderr
        return strict(done.stdout)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    world = World(tmp_path_factory.mktemp("record"))
    settings = [{"bench/settings.py": f"STEP_S = {step_s}\n"} for step_s in (0.010, 0.015)]
    source = {"bench/__init__.py": "", "bench/cases.py": SOURCE}
    hashes = make_repository(world.folder / "repo", [{**source, **settings[0]}, settings[1]])
    real = []
    for commit in hashes:
        done = world.run_words(
            [
                *(world.python, world.entry, f"--workspace={world.folder / 'real'}"),
                f"--git_repos={(world.folder / 'repo').as_uri()};main;{commit}",
                *("--python_path=repo", f"--benchmark_methods={STEP}", "--format=json"),
            ]
        )
        real.append(Path(done.results[0]["summary"]))
    for night in range(NIGHTS):
        document = json.loads(real[int(night >= CHANGE)].read_text(encoding="utf-8"))
        document["execution_id"] = f"night-{night:02}"
        document["execution_timestamp"] = 1_700_000_000 + night * 86_400.0
        document["perfrun"]["run_id"] = f"run-{night:02}"
        document["perfrun"]["quality"] = None
        document["process_info"]["max_rss"] = 50 * 2**20  # memory is not what the commits changed
        vary(document, 1 + 0.004 * (night * 7 % 5 - 2))
        path = world.workspace / "output" / document["execution_id"] / "perfzero_summary.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(document), encoding="utf-8")
    written_here(world.workspace)  # what is imported is not run again
    return Place(world, hashes, real)


def vary(document: dict[str, Any], factor: float) -> None:
    """As if each step had taken so many times as long."""
    result, own = document["benchmark_result"], document["perfrun"]
    report, (series,) = own["reports"][0], own["series"]
    factors = {"throughput": 1 / factor, "wall_time": factor}
    for part in (result, report, *result["metrics"], *report["metrics"]):
        for key in part.keys() & factors.keys():
            part[key] *= factors[key]
    for name, metric in series["metrics"].items():
        of_name = 1 / factor if metric["direction"] == "higher" else factor
        before, metric["value"] = metric["value"], metric["value"] * of_name
        for part in (*result["metrics"], *report["metrics"]):
            if (part["name"], part["value"]) == (name, before):
                part["value"] = metric["value"]
    series["throughput_per_s"] = report["throughput"]


def names(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    return {str(row["metric"]) for row in rows}


def test_a_record_says_what_is_primary_and_what_is_derived(place: Place) -> None:
    assert set(place.record.primaries) == PRIMARY
    assert set(place.record.derived("wall_time")) == DERIVED
    assert place.record.values["latency_mean_s"] == 7.0  # the user's, not ours


def test_history_and_the_index_name_them_all(place: Place) -> None:
    series = place.run("history", STEP, "--metric=*")["series"]
    found = {one["metric"]: one["derived_from"] for one in series}
    assert found == {n: one.derived_from or None for n, one in place.record.metrics.items()}
    with open_store(parse_address(None, place.world.workspace)) as store:
        trials = list(store.trials())
    assert [set(trial.primaries) for trial in trials] == [PRIMARY] * NIGHTS
    assert [set(trial.derived("wall_time")) for trial in trials] == [DERIVED] * NIGHTS


def test_one_slowdown_is_one_change_that_lists_what_is_derived(place: Place) -> None:
    found = place.run("detect")
    assert found["series"] + sum(found["left_out"].values()) == len(PRIMARY)
    (change,) = found["changes"]
    assert change["metric"] == "wall_time"
    assert names(change["derived"]) == COMPARED
    ratios = {one["metric"]: one["ratio"] for one in change["derived"]}
    assert ratios["latency_p90_s"] == pytest.approx(1.5, rel=0.02)
    assert ratios["images_per_second"] == pytest.approx(1 / 1.5, rel=0.02)
    (change,) = place.run("detect", "--metric=images_per_second")["changes"]
    assert (change["metric"], change["direction"]) == ("images_per_second", "worse")


def test_compare_judges_primaries_and_shows_what_is_derived(place: Place) -> None:
    before, after = (f"date:{day}" for day in ("2023-11-15..2023-12-10", "2023-12-26..2023-12-30"))
    rows = place.run("compare", before, after)["comparisons"]
    assert names(rows) == PRIMARY
    assert [row["metric"] for row in rows if row["verdict"] == "slower"] == ["wall_time"]
    assert {row["metric"]: names(row["derived"]) for row in rows if row["derived"]} == {
        "wall_time": COMPARED
    }
    (row,) = place.run("compare", before, after, "--metrics=latency_p90_s")["comparisons"]
    assert (row["metric"], row["verdict"]) == ("latency_p90_s", "slower")
    page = place.world.run_words(
        [
            *(place.world.python, place.world.entry, "compare", before, after),
            f"--workspace={place.world.workspace}",
        ]
    ).stdout
    assert f"With wall_time of {STEP}: throughput 0.66" in page


def test_a_team_s_store_judges_the_same_when_the_files_have_gone(
    place: Place, tmp_path: Path
) -> None:
    copy = tmp_path / "gone"
    shutil.copytree(place.world.workspace / "output", copy / "output")
    file = tmp_path / "team.db"
    with open_store(parse_address(str(file), copy)) as store:
        store.refresh([copy])
    shutil.rmtree(copy)
    rows = place.run("compare", "run-10", "run-45", f"--store={file}")["comparisons"]
    assert names(rows) == PRIMARY
    assert {row["metric"]: names(row["derived"]) for row in rows if row["derived"]} == {
        "wall_time": COMPARED
    }


def test_ab_judges_primaries_and_what_it_is_asked_for(place: Place) -> None:
    sides = [f"--{n}=--git_repos={place.repository};main;{place.hashes[i]}"
             for i, n in enumerate("ab")]  # fmt: skip
    common = ["--python_path=repo", f"--benchmark_methods={STEP}", "--max_pairs=8"]
    found = place.run("ab", *sides, *common, "--metric=latency_p90_s")
    first, *others = found["comparisons"]
    assert (first["metric"], first["verdict"]) == ("latency_p90_s", "slower")
    assert names(others) == PRIMARY
    assert names(next(r for r in others if r["metric"] == "wall_time")["derived"]) == COMPARED


def test_a_confirmation_of_a_derived_metric_is_decided(place: Place) -> None:
    words = ["--confirm", "--max_changes=1"]
    (change,) = place.run("detect", *words)["changes"]  # none is left out
    assert (change["metric"], change["status"]) == ("wall_time", "confirmed")
    for metric in ("images_per_second", "latency_p90_s"):
        (change,) = place.run("detect", *words, f"--metric={metric}")["changes"]
        assert (change["metric"], change["status"]) == (metric, "confirmed"), change


def test_bisect_searches_by_a_derived_metric_and_names_them_all(place: Place) -> None:
    ends = [f"--good={place.hashes[0]}", f"--bad={place.hashes[1]}", "--python_path=repo"]
    words = [f"--benchmark_methods={STEP}", f"--git_repos={place.repository};main", *ends]
    found = place.run("bisect", *words, "--metric=images_per_second")
    assert found["status"] == "found"
    assert (found["culprit"]["name"], found["direction"]) == (place.hashes[1], "worse")
    line = [place.world.python, place.world.entry, "bisect", "--metric=none_such", *words]
    said = place.world.run_words([*line, f"--workspace={place.world.workspace}"]).stderr
    listed = said.rpartition("its metrics are: ")[2].strip().split(", ")
    assert set(listed) == PRIMARY | DERIVED


def test_a_night_reports_them_all(place: Place, tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(
        f'name = "s"\ntrials = 1\npython_path = ["repo"]\nworkspace = "{tmp_path / "w"}"\n'
        f'[[repos]]\nurl = "{place.repository}"\nbranch = "main"\n'
        f'[[methods]]\nname = "{STEP}"\n'
    )
    line = [place.world.python, place.world.entry, "nightly", str(suite), "--format=json"]
    report = strict(place.world.run_words(line).stdout)
    (method,) = report["methods"]
    found = {one["metric"]: one["derived_from"] for one in method["figures"]}
    assert found == {n: one.derived_from or None for n, one in place.record.metrics.items()}
