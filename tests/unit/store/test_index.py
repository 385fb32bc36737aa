"""The index: in a workspace, in a file, and on a PostgreSQL server, with the same answers."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from trial_documents import BEGIN_S, NIGHT_S, perfrun_summary, perfzero_summary, write_nights
from trial_documents import write_summary as put

from perfrun.errors import StoreError, UsageError
from perfrun.options.store_address import Address, parse_address
from perfrun.store import database as connections
from perfrun.store import schema
from perfrun.store.index import Refreshed, Store, open_store
from perfrun.store.places import WORKSPACE_ID, Places
from perfrun.store.query import Selector
from perfrun.store.schema import TABLES
from perfrun.summary.record import SummaryRecord, read_record, record_of

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """The output folder of the workspace."""
    return tmp_path / "work space" / "output"


def everything(store: Store) -> Any:
    """Return all that an index holds, except the paths of files."""
    trials = [{**asdict(trial), "path": ""} for trial in store.trials()]
    series = []
    for one in store.series():
        points = [point._replace(summary_path="") for point in one.points]
        series.append((one.key, one.unit, one.direction, one.derived_from, points))
    return trials, series


def fill(address: Address, *folders: Path) -> Refreshed:
    with open_store(address) as store:
        return store.refresh(folders)


def test_a_series_has_its_points_by_time_with_unit_and_direction(
    address: Address, output: Path
) -> None:
    for number in (3, 1, 2):
        put(output, perfrun_summary(number, wall_time=float(number)))
    with open_store(address) as store:
        assert store.refresh([output]) == Refreshed(found=3, read=3, gone=0, bad=0)
        (series,) = store.series(metric="wall_time")
    assert [point.value for point in series.points] == [1, 2, 3]
    assert [point.timestamp for point in series.points] == [
        BEGIN_S + number * NIGHT_S for number in (1, 2, 3)
    ]
    assert (series.unit, series.direction) == ("s", "lower")
    assert series.key.method == "pkg.mod.Cases.ok"
    point = series.points[0]
    assert (point.run_id, point.status, point.grade, point.disturbed) == (
        "run-1",
        "passed",
        "A",
        False,
    )
    assert point.commits == {"models": f"{1:040x}"}
    assert Path(point.summary_path) == output / point.execution_id / "perfzero_summary.json"


def test_what_a_name_tells_is_used_where_the_summary_states_nothing(
    address: Address, output: Path
) -> None:
    metrics = [{"name": "images_per_second", "value": 7.0}, {"name": "whatever", "value": 1.0}]
    put(output, perfrun_summary(metrics=metrics))
    fill(address, output)
    with open_store(address) as store:
        found = {one.key.metric: (one.unit, one.direction) for one in store.series()}
    assert found["images_per_second"] == ("1/s", "higher")
    assert found["peak_rss_bytes"] == ("bytes", "lower")
    assert found["whatever"] == ("", "none")


def test_a_second_look_reads_only_what_changed(address: Address, output: Path) -> None:
    paths = write_nights(output, 3)
    fill(address, output)
    assert fill(address, output) == Refreshed(found=3, read=0, gone=0, bad=0)
    before = paths[1].stat()
    put(output, perfrun_summary(2, wall_time=2.5))  # of the same length
    os.utime(paths[1], ns=(before.st_atime_ns, before.st_mtime_ns))  # within one tick of the clock
    assert fill(address, output) == Refreshed(found=3, read=1, gone=0, bad=0)
    with open_store(address) as store:
        (series,) = store.series(metric="wall_time")
    assert [point.value for point in series.points] == [1.5, 2.5, 1.5]


def test_an_index_built_anew_says_the_same(address: Address, output: Path, tmp_path: Path) -> None:
    write_nights(output, 3)
    for number in range(4):  # grown over time, each time a changed file as well
        put(output, perfrun_summary(number, wall_time=number + 0.5))
        fill(address, output)
    with open_store(address) as store:
        grown = everything(store)
    anew = parse_address(str(tmp_path / "anew.db"), tmp_path)
    fill(anew, output)
    with open_store(anew) as store:
        assert everything(store) == grown
    assert len(grown[0]) == 4


@pytest.mark.parametrize("kind", ["truncated", "empty", "folder", "unreadable", "fifo"])
def test_a_bad_summary_among_good_ones_is_named_and_costs_only_itself(
    address: Address, output: Path, kind: str
) -> None:
    paths = write_nights(output, 3)
    spoil(paths[1], kind)
    with open_store(address) as store:
        assert store.refresh([output]) == Refreshed(found=3, read=3, gone=0, bad=1)
        (bad,) = store.bad_files()
        assert bad.path == str(paths[1])
        assert bad.reason
        assert len(list(store.trials())) == 2
        assert store.refresh([output]) == Refreshed(found=3, read=0, gone=0, bad=1)
    if paths[1].is_dir():
        paths[1].rmdir()
    put(output, perfrun_summary(2))
    with open_store(address) as store:
        assert store.refresh([output]) == Refreshed(found=3, read=1, gone=0, bad=0)
        assert store.bad_files() == ()
        assert len(list(store.trials())) == 3


def test_a_summary_that_the_disk_did_not_give_once_is_read_again(
    address: Address, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_nights(output, 2)

    def fails_once(path: Path) -> SummaryRecord:
        if path == paths[0]:
            raise OSError(errno.EIO, "Input/output error")
        return read_record(path)

    with open_store(address) as store, monkeypatch.context() as broken:
        broken.setattr("perfrun.store.index.read_record", fails_once)
        assert store.refresh([output]) == Refreshed(found=2, read=2, gone=0, bad=1)
    with open_store(address) as store:
        assert store.refresh([output]) == Refreshed(found=2, read=1, gone=0, bad=0)
        assert len(list(store.trials())) == 2


def spoil(path: Path, kind: str) -> None:
    text = path.read_text(encoding="utf-8")
    path.unlink()
    if kind == "truncated":
        path.write_text(text[: len(text) // 2], encoding="utf-8")
    elif kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(path.name)  # for root too, nothing can be read there


def test_what_was_read_is_kept_by_a_team_when_its_file_has_gone_or_gone_bad(
    team: Address, output: Path
) -> None:
    paths = write_nights(output, 3)
    fill(team, output)
    shutil.rmtree(paths[0].parent)
    spoil(paths[1], "truncated")
    with open_store(team) as store:
        assert store.refresh([output]) == Refreshed(found=2, read=1, gone=1, bad=1)
        assert len(list(store.trials())) == 3
        assert store.counts().gone == 2
        assert store.refresh([output]) == Refreshed(found=2, read=0, gone=0, bad=1)
    write_nights(output, 3)
    with open_store(team) as store:
        store.refresh([output])
        assert store.counts().gone == 0
        assert len(list(store.trials())) == 3


def test_a_workspace_s_own_index_holds_what_is_there(output: Path) -> None:
    address = parse_address(None, output.parent)
    paths = write_nights(output, 3)
    fill(address)
    shutil.rmtree(paths[0].parent)
    spoil(paths[1], "truncated")
    assert fill(address) == Refreshed(found=2, read=1, gone=1, bad=1)
    with open_store(address) as store:
        assert len(list(store.trials())) == 1
    shutil.rmtree(output)
    assert fill(address) == Refreshed(found=0, read=0, gone=2, bad=0)
    with open_store(address) as store:
        assert everything(store) == ([], [])
        assert store.bad_files() == ()


def test_a_workspace_that_has_moved_is_not_read_again(output: Path, tmp_path: Path) -> None:
    write_nights(output, 3)
    fill(parse_address(None, output.parent))
    moved = output.parent.rename(tmp_path / "elsewhere")
    address = parse_address(None, moved)
    assert fill(address) == Refreshed(found=3, read=0, gone=0, bad=0)
    with open_store(address) as store:
        trials = list(store.trials())
    assert all(trial.path.is_relative_to(moved) for trial in trials)


def test_a_trial_found_twice_counts_once_and_stays_until_its_last_copy_goes(
    address: Address, output: Path, tmp_path: Path
) -> None:
    write_nights(output, 2)
    copy = tmp_path / "copy" / "output"
    shutil.copytree(output, copy)
    fill(address, output, copy)
    with open_store(address) as store:
        assert len(list(store.trials())) == 2
    shutil.rmtree(copy)
    copy.mkdir()
    fill(address, output, copy)
    with open_store(address) as store:
        trials = list(store.trials())
        assert [trial.path.is_relative_to(output) for trial in trials] == [True] * 2


def test_summaries_are_found_in_whatever_folder_is_named(address: Address, tmp_path: Path) -> None:
    workspace = tmp_path / "another"
    put(workspace / "output", perfzero_summary(1))
    put(tmp_path / "plain", perfzero_summary(2))
    trial = put(tmp_path / "plain 2", perfzero_summary(3)).parent
    file = tmp_path / "any name.json"
    put(tmp_path / "plain 3", perfzero_summary(4)).rename(file)
    fill(address, workspace, tmp_path / "plain", trial, file)
    with open_store(address) as store:
        assert len(list(store.trials())) == 4
        assert fill(address, workspace, tmp_path / "plain", trial, file).read == 0
    with pytest.raises(UsageError, match="nowhere: No such file"):
        fill(address, tmp_path / "nowhere")


HOSTILE = ["new\nline", "quo'te\"", "größe", "a;b&c", "%20 ?#", os.fsdecode(b"not \xff utf-8")]


@pytest.mark.parametrize("name", HOSTILE)
def test_files_with_any_name_are_indexed(address: Address, output: Path, name: str) -> None:
    put(output, perfrun_summary(1)).parent.rename(output / name)
    fill(address, output)
    assert fill(address, output).read == 0
    with open_store(address) as store:
        (trial,) = store.trials()
    assert trial.path.is_relative_to(output.resolve())
    str(trial.path).encode("utf-8")


def test_a_workspace_that_several_containers_see_is_read_once(
    team: Address, output: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compose draws the name of the host anew for each container."""
    write_nights(output, 3)
    (output.parent / "runs").mkdir()  # perfrun has run there
    put(output, perfrun_summary(9)).write_text("{", encoding="utf-8")
    assert fill(team, output.parent) == Refreshed(found=4, read=4, gone=0, bad=1)
    before = rows_of_files(team)
    monkeypatch.setattr(socket, "gethostname", lambda: "4f5e6d7c8b9a")
    assert fill(team, output.parent) == Refreshed(found=4, read=0, gone=0, bad=1)
    assert rows_of_files(team) == before
    mounted = output.parent.rename(tmp_path / "mounted elsewhere")
    assert fill(team, mounted) == Refreshed(found=4, read=0, gone=0, bad=1)
    assert rows_of_files(team) == before
    with open_store(team) as store:
        assert all(trial.path.is_relative_to(mounted) for trial in store.trials())
        (bad,) = store.bad_files()
    assert Path(bad.path).is_relative_to(mounted)
    shutil.rmtree(mounted / "output" / perfrun_summary(1)["execution_id"])
    assert fill(team, mounted).gone == 1
    assert sorted(gone for *_, gone in rows_of_files(team)) == [False, False, True]


@pytest.mark.parametrize("runs", [True, False])
def test_two_workspaces_at_the_same_path_are_two(
    team: Address, output: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: bool
) -> None:
    names = []
    for number in (1, 2):
        put(output, perfrun_summary(number))
        names.append(perfrun_summary(number)["execution_id"])
        if runs:
            (output.parent / "runs").mkdir()
        else:  # another machine's disk
            about = types.SimpleNamespace(f_fsid=number)
            monkeypatch.setattr(os, "statvfs", lambda _, about=about: about)
        monkeypatch.setattr(socket, "gethostname", lambda number=number: f"host-{number}")
        assert fill(team, output.parent) == Refreshed(found=1, read=1, gone=0, bad=0)
        output.parent.rename(tmp_path / f"of host {number}")
    with open_store(team) as store:
        assert [trial.execution_id for trial in store.trials()] == names
    assert [gone for *_, gone in rows_of_files(team)] == [False, False]


def test_a_workspace_where_no_id_can_be_kept_is_known_by_its_disk(
    team: Address, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_nights(output, 2)
    (output.parent / "runs").mkdir()
    (output.parent / WORKSPACE_ID).mkdir()  # no file can be made there
    assert fill(team, output.parent).read == 2
    monkeypatch.setattr(socket, "gethostname", lambda: "4f5e6d7c8b9a")
    assert fill(team, output.parent).read == 0
    assert len(rows_of_files(team)) == 2
    (output.parent / WORKSPACE_ID).rmdir()  # from now on there is an id
    assert fill(team, output.parent).read == 2
    assert fill(team, output.parent).read == 0
    assert [place.partition(":")[0] for place, *_ in rows_of_files(team)] == ["workspace"] * 2


def test_a_copy_of_a_workspace_beside_it_is_kept_apart(
    team: Address, output: Path, tmp_path: Path
) -> None:
    write_nights(output, 1)
    (output.parent / "runs").mkdir()
    fill(team, output.parent)
    copy = tmp_path / "copy"
    shutil.copytree(output.parent, copy)
    put(copy / "output", perfrun_summary(2))
    assert fill(team, output.parent, copy) == Refreshed(found=3, read=2, gone=0, bad=0)
    assert fill(team, output.parent, copy).read == 0
    with open_store(team) as store:
        assert store.counts().trials == 2


def test_whoever_makes_the_id_of_a_workspace_first_has_made_it_for_all(output: Path) -> None:
    (output.parent / "runs").mkdir(parents=True)
    path = str(output / "any" / "perfzero_summary.json")
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: Places(None).key(path), range(32)))
    assert len(set(keys)) == 1
    assert sorted(p.name for p in output.parent.iterdir()) == [WORKSPACE_ID, "runs"]


@pytest.mark.parametrize("name", [*HOSTILE, "100%41 #", "a?mode=ro"])
def test_a_workspace_of_any_name_has_its_index_in_it_and_nothing_beside_it(
    tmp_path: Path, name: str
) -> None:
    workspace = tmp_path / "all" / name
    put(workspace / "output", perfrun_summary(1))
    for _ in range(2):
        with open_store(parse_address(None, workspace)) as store:
            store.refresh()
            assert store.counts().trials == 1
    assert (workspace / "perfrun.db").is_file()
    assert [path.name for path in workspace.parent.iterdir()] == [name]


def test_trials_are_chosen_by_any_of_their_facts(address: Address, output: Path) -> None:
    write_nights(output, 3)
    other = perfrun_summary(4, name="pkg.mod.Cases.other", own={"outcome": {"status": "failed"}})
    other["benchmark_info"]["execution_label"] = "night [1]"
    put(output, other)
    fill(address, output)
    choices = {
        Selector(methods=("pkg.mod.Cases.ok",)): 3,
        Selector(methods=("*.other",)): 1,
        Selector(methods=("pkg",)): 0,
        Selector(labels=("night [1]",)): 1,
        Selector(run_ids=("run-1", "run-2")): 2,
        Selector(execution_ids=("2026-06-01-00-00-00-000003",)): 1,
        Selector(commits=(f"{2:040x}",)): 1,
        Selector(commits=("0" * 39,)): 4,
        Selector(since=BEGIN_S + 2 * NIGHT_S): 3,
        Selector(until=BEGIN_S + 2 * NIGHT_S): 1,
        Selector(folders=(output,)): 4,
        Selector(folders=(output / "2026-06-01-00-00-00-000003",)): 1,
        Selector(folders=(output.parent / "out",)): 0,
        Selector(methods=("*ok",), since=BEGIN_S + 2 * NIGHT_S): 2,
    }
    with open_store(address) as store:
        for selector, count in choices.items():
            assert len(list(store.trials(selector))) == count, selector
        failed = next(store.trials(Selector(methods=("*.other",))))
        assert (failed.status, failed.values) == ("failed", {})
        assert [len(one.points) for one in store.series(metric="wall_time")] == [3]
        since = list(store.series("pkg.*", "wall*", since=BEGIN_S + 3 * NIGHT_S))
        assert [len(one.points) for one in since] == [1]


def test_a_trial_says_what_it_ran_in(address: Address, output: Path) -> None:
    put(output, perfrun_summary(1, extras=[{"name": "batch_size", "value": 8}]))
    fill(address, output)
    with open_store(address) as store:
        (trial,) = store.trials()
    assert trial.context["distributions"] == {"tensorflow": "2.21.0", "numpy": "2.4.6"}
    assert trial.context["system"]["hostname"] == trial.hostname == "vm"
    assert trial.extras == {"batch_size": 8}
    assert trial.values["wall_time"] == 1.5
    assert trial.metrics["wall_time"].direction == "lower"


def test_the_same_answers_come_from_every_place(
    address: Address, output: Path, tmp_path: Path
) -> None:
    metrics = [{"name": name, "value": 1 / 3} for name in ("acc", "é", "x" * 300)]
    write_nights(output, 5, metrics=metrics, extras=[{"name": "note", "value": "a\0b"}])
    fill(address, output)
    reference = parse_address(str(tmp_path / "reference.db"), tmp_path)
    fill(reference, output)
    with open_store(address) as store, open_store(reference) as other:
        assert everything(store) == everything(other)


def test_adding_single_files_reads_them_at_once(address: Address, output: Path) -> None:
    paths = write_nights(output, 2)
    with open_store(address) as store:
        assert store.add(paths[:1]).read == 1
        assert [trial.execution_id for trial in store.trials()] == [paths[0].parent.name]
        assert store.add(paths).read == 1


def test_texts_and_figures_come_back_as_they_were(address: Address, output: Path) -> None:
    label = "\\N\\. \ttab\nline\r\\b 'quoted\" {1,2} ✓ \x01"
    figure = 0.1 + 0.2  # which needs all of its digits
    document = perfrun_summary(1, wall_time=figure)
    document["benchmark_info"]["execution_label"] = label
    put(output, document)
    smallest = perfrun_summary(2, wall_time=5e-324)
    smallest["benchmark_info"]["execution_label"] = ""
    put(output, smallest)
    with open_store(address) as store:
        store.refresh([output])
        first, second = store.trials()
    assert (first.label, first.values["wall_time"]) == (label, figure)
    assert (second.label, second.values["wall_time"]) == ("", 5e-324)


def test_what_the_database_refuses_to_write_is_one_line_and_nothing_half_written(
    address: Address, output: Path
) -> None:
    fill(address)
    engine = sqlalchemy.create_engine(
        connections.engine_url(address), poolclass=sqlalchemy.NullPool
    )
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE measurements RENAME TO others")
    put(output, perfrun_summary(1))
    with pytest.raises(StoreError) as caught:
        fill(address, output)
    assert "\n" not in str(caught.value)
    assert "measurements" in str(caught.value)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE others RENAME TO measurements")
        assert connection.execute(sqlalchemy.select(schema.trials.c.id)).all() == []
    assert fill(address, output).read == 1


# Versions.

SHIPPED = schema.MIGRATIONS
# Whoever changes a table, a key or a metric changes this line, and adds a migration.
VERSIONS = {4: "800393e965379632"}


def test_tables_and_keys_do_not_change_without_a_new_version() -> None:
    tables = {name: [f"{c.name} {c.type}" for c in t.columns] for name, t in TABLES.tables.items()}
    own = {"env": {"B": "1", "A": "x y"}, "benchmark_flags": ["--n=1"]}
    key = asdict(record_of(perfrun_summary(own=own), Path()).subject)
    metrics = record_of(measured(1), Path()).metrics.values()
    told = [tables, key, sorted(map(str, metrics))]
    found = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    assert {schema.schema_version(): found} == VERSIONS


def test_an_index_of_version_1_keeps_its_trials_and_learns_of_variables(
    address: Address, output: Path
) -> None:
    for number, env in enumerate(({}, {"OMP_NUM_THREADS": "4"}, {"OMP_NUM_THREADS": "4"}), 1):
        put(output, perfrun_summary(number, own={"env": env, "benchmark_flags": ["--n=1"]}))
    fill(address, output)
    with open_store(address) as store:
        before = sorted(everything(store)[1], key=str)
    assert {key.settings for key, *_ in before} == {"--n=1", "OMP_NUM_THREADS=4 --n=1"}
    make_version_1(address)
    moved = output.with_name("moved")
    output.rename(moved)  # what is known must not come from the files
    with open_store(address) as store:
        assert sorted(everything(store)[1], key=str) == before
    moved.rename(output)
    assert fill(address, output).read == 3  # and what is there is read again
    assert fill(address, output).read == 0
    with open_store(address) as store:
        assert sorted(everything(store)[1], key=str) == before


def measured(number: int, **more: Any) -> dict[str, Any]:
    """A trial of one reported `measure`, with a metric of the user's own."""
    own = {"latency_median_s": 1.5, "latency_p90_s": 1.75, "first_call_s": 9.0}
    metrics = [{"name": n, "value": v} for n, v in (*own.items(), ("latency_mean_s", 7.0))]
    report = {"name": "Cases.ok", "wall_time": 1.5, "throughput": 4.0, "metrics": metrics}
    stated = {n: {"value": v, "unit": "s", "direction": "lower"} for n, v in own.items()}
    series = [{"name": "a", "report": "Cases.ok", "throughput_per_s": 4.0, "metrics": stated}]
    warm = {"name": "warm", "report": None, "metrics": {"latency_median_s": stated["first_call_s"]}}
    warm["metrics"]["latency_p90_s"] = stated["latency_p90_s"]
    parts = {"reports": [report], "series": [*series, warm]}
    return perfrun_summary(number, metrics=metrics, own=parts, **more)


DERIVED = {
    "wall_time": "",
    "throughput": "wall_time",
    "latency_median_s": "wall_time",
    "latency_p90_s": "wall_time",
    "first_call_s": "",
    "latency_mean_s": "",
    "warm/latency_median_s": "",
    "warm/latency_p90_s": "warm/latency_median_s",
    "peak_rss_bytes": "",
}


def test_an_index_of_version_2_learns_what_is_derived_from_what(
    address: Address, output: Path
) -> None:
    put(output, measured(1))
    reports = [{"name": "Cases.other", "wall_time": 1.5, "throughput": 3.0}]
    put(output, perfrun_summary(2, name="pkg.mod.Cases.other", own={"reports": reports}))
    fill(address, output)
    with open_store(address) as store:
        before = everything(store)[1]
        (first, second) = store.trials()
    assert {name: one.derived_from for name, one in first.metrics.items()} == DERIVED
    assert second.metrics["throughput"].derived_from == ""
    make_version_2(address)
    moved = output.with_name("moved")
    output.rename(moved)  # what is known must not come from the files
    with open_store(address) as store:
        assert everything(store)[1] == before
    moved.rename(output)
    assert fill(address, output).read == 2  # and what is there is read again
    assert fill(address, output).read == 0
    with open_store(address) as store:
        assert everything(store)[1] == before
    assert len(rows_of_files(address)) == 2


def rows_of_files(address: Address) -> list[tuple[str, str, bool]]:
    """Return place, path and `gone` of each file."""
    with connections.Database(address) as database, database.reading() as connection:
        query = sqlalchemy.text("SELECT place, path, gone FROM files ORDER BY place, path")
        return [(row.place, row.path, bool(row.gone)) for row in connection.execute(query)]


def make_version_2(address: Address) -> None:
    """Make an index as an earlier perfrun left it: no derived metrics, files by the host's name."""
    with connections.Database(address) as database, database.writing() as connection:
        for line in (
            (
                "UPDATE measurements SET metric_id = (SELECT MIN(other.id) FROM metrics other "
                "JOIN metrics own ON own.name = other.name AND own.unit = other.unit AND "
                "own.direction = other.direction WHERE own.id = metric_id)"
            ),
            "DELETE FROM metrics WHERE id NOT IN (SELECT metric_id FROM measurements)",
            "UPDATE metrics SET digest = 'of version 2, ' || id",
            "ALTER TABLE metrics DROP COLUMN derived_from",
            "ALTER TABLE trials DROP COLUMN batch_size",
            (
                "UPDATE files SET path = (SELECT root FROM places WHERE name = place) || '/' || "
                "path WHERE place LIKE 'workspace:%'"
            ),
            "UPDATE files SET place = 'another-container' WHERE place <> ''",
            "ALTER TABLE files RENAME COLUMN place TO host",
            "ALTER TABLE bad_files RENAME COLUMN place TO host",
            "DROP TABLE places",
            "UPDATE perfrun_store SET value = '2'",
        ):
            connection.execute(sqlalchemy.text(line))


def make_version_1(address: Address) -> None:
    """Make an index as an early perfrun left it: no urls, and one series for all variables."""
    make_version_2(address)
    # Not by way of `Database`, which would bring it up to date.
    engine = sqlalchemy.create_engine(connections.engine_url(address))
    with engine.begin() as connection:
        for line in (
            "UPDATE trials SET subject_id = (SELECT MIN(id) FROM subjects)",
            "DELETE FROM subjects WHERE id <> (SELECT MIN(id) FROM subjects)",
            "UPDATE subjects SET settings = '--n=1', digest = 'of version 1'",
            "ALTER TABLE contexts DROP COLUMN urls",
            "UPDATE perfrun_store SET value = '1'",
        ):
            connection.execute(sqlalchemy.text(line))
    engine.dispose()


def set_version(address: Address, version: str) -> None:
    with connections.Database(address) as database, database.writing() as connection:
        connection.execute(sqlalchemy.update(schema.meta).values(value=version))


def test_an_index_of_a_newer_perfrun_is_refused_in_one_line(address: Address) -> None:
    fill(address)
    set_version(address, "999")
    with pytest.raises(StoreError, match="newer perfrun") as caught, open_store(address):
        pass
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def add_column(connection: sqlalchemy.Connection) -> None:
    connection.execute(sqlalchemy.text("ALTER TABLE trials ADD COLUMN more TEXT"))


def test_an_older_index_is_brought_up_to_date_with_all_it_holds(
    address: Address, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_nights(output, 2)
    fill(address, output)
    monkeypatch.setattr(schema, "MIGRATIONS", (*SHIPPED, add_column))
    with open_store(address) as store:
        assert len(list(store.trials())) == 2
    with connections.Database(address) as database, database.reading() as connection:
        assert schema.stored_version(connection) == len(SHIPPED) + 2
        assert connection.execute(sqlalchemy.text("SELECT more FROM trials")).all() == [(None,)] * 2
    monkeypatch.setattr(schema, "MIGRATIONS", SHIPPED)
    newer = len(SHIPPED) + 2
    telling = f"schema {newer}; this one knows {newer - 1}"
    with pytest.raises(StoreError, match=telling), open_store(address):
        pass


def test_a_migration_that_fails_leaves_the_index_as_it_was(
    address: Address, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: sqlalchemy.Connection) -> None:
        connection.execute(sqlalchemy.text("SELECT 1 FROM nowhere"))

    write_nights(output, 2)
    fill(address, output)
    monkeypatch.setattr(schema, "MIGRATIONS", (*SHIPPED, add_column, fail))
    with pytest.raises(StoreError, match="nowhere"), open_store(address):
        pass
    monkeypatch.setattr(schema, "MIGRATIONS", SHIPPED)
    with open_store(address) as store:
        assert len(list(store.trials())) == 2
    monkeypatch.setattr(schema, "MIGRATIONS", (*SHIPPED, add_column))
    with open_store(address):  # the column is not there yet
        pass


def test_a_database_of_something_else_is_left_alone(address: Address) -> None:
    Path(address.file).parent.mkdir(exist_ok=True) if address.file else None
    engine = sqlalchemy.create_engine(
        connections.engine_url(address), poolclass=sqlalchemy.NullPool
    )
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE trials (mine TEXT)"))
    with pytest.raises(StoreError, match="something else"), open_store(address):
        pass
    with engine.begin() as connection:
        assert sqlalchemy.inspect(connection).get_table_names() == ["trials"]


def test_a_file_that_is_no_database_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "perfrun.db"
    path.write_bytes(b"not a database, but long enough to be looked at\n" * 100)
    with pytest.raises(StoreError, match="delete it and run `perfrun index`") as caught:
        fill(parse_address(None, tmp_path))
    assert str(path) in str(caught.value)


def test_a_damaged_index_can_be_deleted_and_built_anew(output: Path) -> None:
    address = parse_address(None, output.parent)
    write_nights(output, 50)
    fill(address)
    assert address.file is not None
    content = bytearray(address.file.read_bytes())
    content[8192:20480] = b"\x5a" * 12288
    address.file.write_bytes(content)
    with pytest.raises(StoreError, match="delete it"), open_store(address) as store:
        everything(store)
    for path in output.parent.glob("perfrun.db*"):
        path.unlink()
    assert fill(address).read == 50


def test_an_index_where_nothing_can_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="must be there and writable"):
        fill(parse_address(None, tmp_path / "nowhere"))


@pytest.mark.postgresql
def test_a_server_that_does_not_answer_or_let_us_in_is_one_line_without_the_password(
    postgresql: Any, tmp_path: Path
) -> None:
    wrong = parse_address(postgresql.url("postgres", password="wr0ng/one"), tmp_path)
    closed = parse_address("postgresql://perfrun:wr0ng@127.0.0.1:1/x", tmp_path)
    missing = parse_address(postgresql.url("nodatabase"), tmp_path)
    for address in (wrong, closed, missing):
        with pytest.raises(StoreError) as caught, open_store(address):
            pass
        assert "\n" not in str(caught.value)
        assert "wr0ng" not in str(caught.value)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "store", ["mysql://h/d", "sqlite://", "sqlite:///", "http://h/perfrun.db", "postgresql+x://h/d"]
)
def test_other_addresses_are_refused(store: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--store="):
        parse_address(store, tmp_path)
    with pytest.raises(UsageError, match="is a folder"):
        parse_address(str(tmp_path), tmp_path)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_usual_names_of_postgresql_mean_the_same(scheme: str, tmp_path: Path) -> None:
    address = parse_address(f"{scheme}://me:word@host/db", tmp_path)
    assert address.url == "postgresql+psycopg://me:word@host/db"
    assert "word" not in address.shown


def test_a_missing_driver_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    address = parse_address("postgresql://me:word@host/db", tmp_path)
    with pytest.raises(StoreError, match=r"needs psycopg: .*/python\S* -m pip install 'psycopg\["):
        connections._engine(address)


# Several writers, and killed ones.

WRITER = """
import sys
from pathlib import Path
from perfrun.options.store_address import parse_address
from perfrun.store import index
index._BATCH = 20  # many transactions
with index.open_store(parse_address(sys.argv[1], Path("."))) as store:
    store.refresh([Path(folder) for folder in sys.argv[2:]])
"""
KILLED = """
import sys, time
from pathlib import Path
from perfrun.options.store_address import parse_address
from perfrun.store import index
def write(connection, batch, *, keep_gone, whole=index.write_batch):
    whole(connection, batch, keep_gone=keep_gone)
    print("written", flush=True)
    time.sleep(600)
index.write_batch = write
with index.open_store(parse_address(sys.argv[1], Path("."))) as store:
    store.refresh([Path(folder) for folder in sys.argv[2:]])
"""


def writer(source: str, address: Address, *folders: Path) -> subprocess.Popen[bytes]:
    where = address.url if address.file is None else str(address.file)
    words = [sys.executable, "-c", source, where, *map(str, folders)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_two_writers_at_once_lose_nothing_and_write_nothing_twice(
    team: Address, tmp_path: Path
) -> None:
    mine, yours, both = (tmp_path / name for name in ("mine", "yours", "both"))
    for number in range(120):
        put((mine, yours, both)[number % 3], perfrun_summary(number, wall_time=number / 7))
    writers = [writer(WRITER, team, mine, both), writer(WRITER, team, both, yours)]
    for one in writers:
        _, errors = one.communicate(timeout=120)
        assert one.returncode == 0, errors.decode()
    alone = parse_address(str(tmp_path / "alone.db"), tmp_path)
    fill(alone, mine, yours, both)
    with open_store(team) as store, open_store(alone) as other:
        assert everything(store) == everything(other)
        assert store.counts().trials == 120
        assert store.refresh([mine, yours, both]).read == 0


def test_a_writer_killed_in_the_middle_leaves_what_was_whole(team: Address, output: Path) -> None:
    write_nights(output, 5)
    fill(team, output)
    more = output.parent / "more"
    for number in range(10, 20):
        put(more, perfrun_summary(number))
    put(output, perfrun_summary(1, wall_time=9.0))
    killed = writer(KILLED, team, output, more)
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"written\n"
    with open_store(team) as store:  # readers do not wait for it
        assert store.counts().trials == 5
    killed.kill()
    killed.communicate(timeout=60)
    with open_store(team) as store:
        trials = list(store.trials())
        assert [trial.values["wall_time"] for trial in trials] == [1.5] * 5
        assert store.refresh([output, more]) == Refreshed(found=15, read=11, gone=0, bad=0)
        assert [t.values["wall_time"] for t in store.trials()] == [9.0] + [1.5] * 14


def test_waiting_too_long_for_another_writer_is_an_error(
    team: Address, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_nights(output, 1)
    fill(team)
    holder = writer(KILLED, team, output)
    assert holder.stdout is not None
    holder.stdout.readline()
    put(output, perfrun_summary(2))
    monkeypatch.setattr(connections, "WAIT_S", 1)
    with pytest.raises(StoreError) as caught:
        fill(team, output)
    assert "\n" not in str(caught.value)
    assert "lock" in str(caught.value)
    holder.kill()
    holder.communicate(timeout=60)


def test_the_index_of_a_workspace_is_a_plain_sqlite_file_that_others_can_read(
    output: Path,
) -> None:
    write_nights(output, 2)
    address = parse_address(None, output.parent)
    fill(address)
    assert address.file is not None
    connection = sqlite3.connect(address.file)
    try:
        query = (
            "SELECT method, name, value FROM measurements JOIN trials ON trials.id = "
            "measurements.trial_id JOIN subjects ON subjects.id = subject_id JOIN metrics ON "
            "metrics.id = metric_id WHERE name = 'wall_time'"
        )
        rows = connection.execute(query).fetchall()
    finally:
        connection.close()
    assert rows == [("pkg.mod.Cases.ok", "wall_time", 1.5)] * 2
