"""`perfrun index` and `perfrun history`, and runs that add their results as they go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from trial_documents import perfrun_summary, perfzero_summary, write_nights
from trial_documents import write_summary as put
from worlds import PATIENCE_S, ROOT, World, strict, wait_until

from perfrun.options.store_address import parse_address
from perfrun.store.index import open_store

CASES = """
class Cases(Benchmark):
    def ok(self):
        self.report_benchmark(wall_time=0.5, metrics=[{"name": "accuracy", "value": 0.9}])

    def fails(self):
        raise ValueError("no")

    def waits(self):
        time.sleep(600)
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(CASES)
    return made


def perfrun(*words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "perfrun" / "benchmark.py"), *map(str, words)]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def held(store: str | None, workspace: Path) -> list[tuple[str, str]]:
    """Method and outcome of each trial in an index, as it is."""
    with open_store(parse_address(store, workspace)) as opened:
        return [(trial.method.rpartition(".")[2], trial.status) for trial in opened.trials()]


def test_index_reads_the_workspace_and_folders_from_elsewhere(tmp_path: Path) -> None:
    workspace = tmp_path / "work space"
    write_nights(workspace / "output", 3)
    put(tmp_path / "from perfzero", perfzero_summary(4))
    done = perfrun("index", f"--workspace={workspace}", tmp_path / "from perfzero", "--format=json")
    assert done.returncode == 0, done.stderr
    assert strict(done.stdout) == {
        "store": str(workspace / "perfrun.db"),
        "found": 4,
        "read": 4,
        "gone": 0,
        "trials": 4,
        "methods": 1,
        "bad_files": [],
    }
    again = perfrun("index", f"--workspace={workspace}")
    assert again.stdout.splitlines() == [
        "found 3 summaries, 0 new or changed",
        f"{workspace / 'perfrun.db'}: 4 trials of 1 method",
    ]


def test_a_folder_without_summaries_is_named(tmp_path: Path) -> None:
    write_nights(tmp_path / "output", 1)
    (tmp_path / "empty").mkdir()
    done = perfrun("index", f"--workspace={tmp_path}", tmp_path / "empty")
    assert done.returncode == 0
    assert f"{tmp_path / 'empty'}: there is no perfzero_summary.json in it" in done.stderr


def test_a_bad_file_is_named_and_costs_nothing_else(tmp_path: Path) -> None:
    paths = write_nights(tmp_path / "output", 3)
    os.truncate(paths[1], 100)
    done = perfrun("index", f"--workspace={tmp_path}")
    assert done.returncode == 0
    assert f"perfrun: {paths[1]} is left out: it is not JSON, or cut short" in done.stderr
    assert "2 trials" in done.stdout
    for path in paths:
        os.truncate(path, 0)
    done = perfrun("index", f"--workspace={tmp_path}")
    assert done.returncode == 1
    assert done.stderr.count("it is empty") == 3


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--workspace=nowhere"], "--workspace="),
        (["nowhere"], "nowhere: No such file"),
        (["--store=mysql://u:secret@h/d"], "--store=mysql://***@h/d: must be"),
        (["--store=postgresql://u:secret@127.0.0.1:1/d"], "postgresql://***@127.0.0.1:1/d: "),
        (["--format=yaml"], "--format=yaml"),
        (["--frobnicate"], "--frobnicate"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(
    tmp_path: Path, words: list[str], reason: str
) -> None:
    (tmp_path / "workspace").mkdir()
    done = perfrun("index", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr


def test_a_store_may_be_filled_from_folders_without_any_workspace(tmp_path: Path) -> None:
    write_nights(tmp_path / "results", 2)
    done = perfrun("index", "--store=team.db", "results", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert held(str(tmp_path / "team.db"), tmp_path) == [("ok", "passed")] * 2


def test_history_shows_what_a_run_has_just_measured(world: World) -> None:
    ran = world.run("--benchmark_num_trials=2", "--quiet", methods="pkg.cases.Cases.ok")
    assert ran.code == 0, ran.stderr
    assert not (world.workspace / "perfrun.db").exists()  # nobody has asked for an index yet
    place = f"--workspace={world.workspace}"
    done = perfrun("history", "pkg.cases.*", place, "--metric=acc*", "--format=json")
    (series,) = strict(done.stdout)["series"]
    assert (series["metric"], series["direction"]) == ("accuracy", "higher")
    assert [point["value"] for point in series["points"]] == [0.9, 0.9]
    shown = perfrun("history", "pkg.cases.Cases.ok", place).stdout
    assert "wall_time (ms)" in shown
    assert all(path.parent.name in shown for path in world.summary_files())
    nothing = perfrun("history", "pkg.cases.Cases.other", place)
    assert (nothing.returncode, nothing.stdout) == (1, "")
    other = perfrun("history", "pkg.cases.Cases.ok", place, "--metric=nope")
    assert other.returncode == 1
    assert "; it has " in other.stderr
    assert "wall_time" in other.stderr


def test_a_run_adds_its_results_to_the_index_that_its_workspace_has(world: World) -> None:
    world.workspace.mkdir()
    perfrun("index", f"--workspace={world.workspace}")
    ran = world.run("--quiet", "--format=json", methods="pkg.cases.Cases.ok,pkg.cases.Cases.fails")
    assert ran.code == 1
    assert held(None, world.workspace) == [("ok", "passed"), ("fails", "failed")]


def test_a_run_without_an_index_imports_no_sqlalchemy(world: World) -> None:
    source = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
assert "sqlalchemy" not in sys.modules
"""
    python, *words = world.words("--quiet", methods="pkg.cases.Cases.ok")
    done = subprocess.run(
        [python, "-c", source, *words],
        cwd=world.folder,
        env=world.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.postgresql)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """What `--store` may be, twice."""
    if request.param == "file":
        return str(tmp_path / "team.db"), str(tmp_path / "team 2.db")
    server = request.getfixturevalue("postgresql")
    return server.new_database(), server.new_database()


def test_results_are_in_the_team_s_store_as_soon_as_each_trial_is_over(
    world: World, stores: tuple[str, str]
) -> None:
    methods = "pkg.cases.Cases.ok,pkg.cases.Cases.waits"
    # Resumed with another store, so that nothing is in it but what the second part has added.
    for store, words in zip(stores, ([], ["--resume"]), strict=True):
        running = world.start(f"--store={store}", *words, methods=methods)
        try:
            wait_until(partial(_has_results, store, world))
            assert held(store, world.workspace)[0] == ("ok", "passed")
        finally:
            running.kill()
            running.communicate(timeout=PATIENCE_S)
    texts = [path.read_text(encoding="utf-8") for path in world.summary_files()]
    assert sum('"status": "passed"' in text for text in texts) == 1  # it did not run again


def _has_results(store: str, world: World) -> bool:
    time.sleep(0.1)  # a server is not to be kept busy by being asked
    there = "://" in store or Path(store).exists()
    return there and bool(held(store, world.workspace))


def test_a_store_that_is_away_costs_a_note_and_no_result(world: World) -> None:
    store = "postgresql+psycopg://me:secret@127.0.0.1:1/perf"
    ran = world.run(
        f"--store={store}",
        "--benchmark_num_trials=3",
        "--quiet",
        "--format=json",
        methods="pkg.cases.Cases.ok",
    )
    assert ran.code == 0
    assert ran.statuses == ["passed"] * 3
    notes = [line for line in ran.stderr.splitlines() if "127.0.0.1" in line]
    assert len(notes) == 2, ran.stderr
    assert "3 results are not in postgresql+psycopg://***@127.0.0.1:1/perf" in notes[1]
    assert "perfrun index --store=" in notes[1]
    everything = ran.stdout + ran.stderr + json.dumps(ran.summaries())
    assert "secret" not in everything


def test_a_wrong_store_is_found_before_anything_runs(world: World) -> None:
    ran = world.run("--store=ftp://host/x", methods="pkg.cases.Cases.ok")
    assert ran.code == 2
    assert "--store=ftp://host/x: must be" in ran.stderr
    assert not world.summary_files()


def test_an_index_in_a_copied_workspace_goes_on(tmp_path: Path) -> None:
    write_nights(tmp_path / "one" / "output", 2)
    perfrun("index", f"--workspace={tmp_path / 'one'}")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    put(tmp_path / "two" / "output", perfrun_summary(9))
    done = perfrun("index", f"--workspace={tmp_path / 'two'}", "--format=json")
    assert strict(done.stdout)["trials"] == 3


def test_a_class_with_a_version_keeps_its_series_when_its_file_changes(world: World) -> None:
    for number, version in enumerate(("2", "'2'", "'3'", "'x' * 101")):
        world.write(
            f"""
class Cases(Benchmark):
    version = {version}

    def ok(self):
        self.report_benchmark(wall_time=0.5)  # edit {number}
"""
        )
        done = world.run("--quiet", methods="pkg.cases.Cases.ok")
        assert done.code == 0, done.stderr
    paths = sorted((world.workspace / "output").glob("*/perfzero_summary.json"))
    written = [json.loads(path.read_text())["perfrun"] for path in paths]
    assert [one["benchmark_version"] for one in written] == ["2", "2", "3", None]
    assert len({one["module_sha256"] for one in written}) == 4
    assert any("benchmark_version" in note for note in written[3]["notes"])
    shown = perfrun("history", "*.ok", f"--workspace={world.workspace}", "--format=json")
    assert shown.returncode == 0, shown.stderr
    found = strict(shown.stdout)["series"]
    points = [(one["source"], len(one["points"])) for one in found]
    assert points == [("version 2", 2), ("version 3", 1), (written[3]["module_sha256"], 1)]
    assert [[one["before"] for one in s["begun_anew"]] for s in found] == [
        [],
        ["version 2"],
        ["version 3"],
    ]
