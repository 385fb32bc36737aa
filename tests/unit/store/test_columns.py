"""The columns beside a large index: the same answers, and only new rows are read."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import postgres
import pytest
from trial_documents import BEGIN_S, NIGHT_S, perfrun_summary, write_summary

from perfrun.benchmark import main
from perfrun.options.store_address import Address, parse_address
from perfrun.store import columns, index
from perfrun.store.index import open_store

METRICS = ("wall_time", "latency_median_s", "loss")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


def put(workspace: Path, draw: random.Random, numbers: range) -> None:
    """Write trials: some fail, some are disturbed, some share a run, a night or a time."""
    for number in numbers:
        night, place = divmod(number, 6)
        method = ("ok", "ok", "slow", "lost", "slow", "ok")[place]
        step = 1.2 if method == "slow" and night > 14 else 1.0
        run = draw.choice(("", f"run-{night}", f"run-{night}", f"run-{number}"))
        status = "passed" if draw.random() < 0.9 else draw.choice(("failed", "out_of_bounds"))
        value = draw.lognormvariate(0, 0.01)
        # Of the series, which alone states a unit: a metric of several units has several rows.
        figure = {"value": value, "direction": "lower", "unit": draw.choice(("s", "ms"))}
        document = perfrun_summary(
            number,
            name=f"pkg.mod.Cases.{method}",
            wall_time=step * draw.lognormvariate(0, 0.01),
            metrics=[{"name": "loss", "value": value}],
            own={
                "run_id": run,
                "outcome": {"status": status},
                "series": [{"report": "", "metrics": {"loss": figure}}],
                "quality": {"grade": "B", "disturbed": draw.random() < 0.1, "findings": []},
                "git": [{"directory": "models", "url": "https://h/r", "git_hash": f"{night:040x}"}],
            },
        )
        document["execution_id"] = f"{draw.randrange(10**6):06}-{number}"
        document["execution_timestamp"] = BEGIN_S + night * NIGHT_S + place // 2 * 60
        write_summary(workspace / "output", document)


def answers(address: Address) -> Any:
    with open_store(address) as store:
        store.refresh()
        found = [list(store.series()), list(store.series(metric="l*", which="primary"))]
    told = [
        [(one.key, one.unit, one.direction, one.derived_from, one.points) for one in some]
        for some in found
    ]
    shared = [[one.origins is other.origins for one in found[0]] for other in found[0]]
    return told, shared


def both(
    monkeypatch: pytest.MonkeyPatch, address: Address, capsys: pytest.CaptureFixture[str]
) -> list[int]:
    """Ask with and without columns; return the rows that the columns read anew."""
    read: list[int] = []
    whole = columns._array

    def array(connection: Any, query: Any, kind: Any, row_of: Any) -> Any:
        found = whole(connection, query, kind, row_of)
        read.append(len(found))
        return found

    assert address.file is not None
    words = ["detect", f"--workspace={address.file.parent}", "--format=json", "--metric=*"]
    with monkeypatch.context() as without:
        without.setattr(index, "COLUMNS_FROM", 10**9)
        expected = answers(address)
        told = main(words), capsys.readouterr()
    with monkeypatch.context() as small:
        small.setattr(index, "COLUMNS_FROM", 1)
        small.setattr(columns, "_array", array)
        assert answers(address) == expected
        assert (main(words), capsys.readouterr()) == told
    assert '"changes": []' not in told[1].out
    return read


def test_the_answers_are_those_without_columns_whatever_happens_to_the_index(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(17)
    address = parse_address(None, workspace)
    assert address.file is not None
    beside = address.file.with_name("perfrun.db-columns")
    put(workspace, draw, range(150))
    assert both(monkeypatch, address, capsys)[0] == 150
    assert beside.is_file()
    assert both(monkeypatch, address, capsys) == []  # nothing new, nothing read
    old_index, old_columns = (path.read_bytes() for path in (address.file, beside))

    put(workspace, draw, range(150, 156))
    assert both(monkeypatch, address, capsys)[0] == 6  # a night

    changed = sorted(workspace.glob("output/*/perfzero_summary.json"))[3]
    changed.write_text(changed.read_text().replace('"wall_time": ', '"wall_time": 1'))
    assert both(monkeypatch, address, capsys)[0] == 156
    shutil.rmtree(changed.parent)
    assert both(monkeypatch, address, capsys)[0] == 155

    for path in workspace.glob("perfrun.db*"):  # the index of a backup, and other trials since
        if path != beside:
            path.unlink()
    address.file.write_bytes(old_index)
    put(workspace, draw, range(156, 162))
    both(monkeypatch, address, capsys)

    for path in workspace.glob("perfrun.db*"):
        if path != beside:
            path.unlink()
    assert both(monkeypatch, address, capsys)[0] == 161  # built again

    # The database of before is put back, and what it lost is added again in another order.
    lost = sorted(workspace.glob("output/*/perfzero_summary.json"))[-6:]
    hidden = [one.rename(one.with_suffix(".aside")) for one in lost]
    both(monkeypatch, address, capsys)
    old_index = address.file.read_bytes()
    for at in (1, 0, 4, 3, 2, 5):
        hidden[at].rename(lost[at])
        both(monkeypatch, address, capsys)
    address.file.write_bytes(old_index)
    assert both(monkeypatch, address, capsys)[0] == 161

    for damaged in (b"", old_columns[:-100], old_columns[::-1]):
        beside.write_bytes(damaged)
        assert both(monkeypatch, address, capsys)[0] == 161
    beside.unlink()
    beside.mkdir()
    assert both(monkeypatch, address, capsys)[0] == 161  # it cannot be kept


def test_a_damaged_file_of_columns_is_none_and_never_an_error(tmp_path: Path) -> None:
    path = tmp_path / "columns"
    trials, figures = np.zeros(5, columns._TRIALS), np.zeros(7, columns._FIGURES)
    figures["trial"] = [0, 0, 1, 2, 3, 4, 4]
    mark = columns.Mark(state="ab", uids="cd")
    whole = columns.StoreColumns(mark=mark, trials=trials, figures=figures)
    columns._save(path, whole)
    content = path.read_bytes()
    for seed in range(400):
        draw, damaged = random.Random(seed), bytearray(content)
        for _ in range(draw.choice((1, 2, 30))):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged[: draw.choice((len(damaged), draw.randrange(len(damaged))))])
        found = columns._load(path)
        assert found is None or np.array_equal(found.figures, figures)
    figures["trial"][3] = 5  # of no trial
    columns._save(path, whole)
    assert columns._load(path) is None


@pytest.mark.postgresql
def test_the_columns_of_a_server_lie_in_the_workspace_that_asks(
    postgresql: postgres.Server, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = parse_address(postgresql.new_database(), workspace)
    put(workspace, random.Random(17), range(60))
    with open_store(address) as store:
        store.refresh([workspace])
        expected = [(one.key, one.points) for one in store.series()]
    monkeypatch.setattr(index, "COLUMNS_FROM", 1)
    for _ in range(2):
        with open_store(address, beside=workspace) as store:
            found = list(store.series())
        assert [(one.key, one.points) for one in found] == expected  # read after the store's end
    assert len(list(workspace.glob(".store-*-columns"))) == 1


def test_columns_do_not_bring_back_what_a_node_in_quarantine_measured(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "COLUMNS_FROM", 1)
    address = parse_address(None, workspace)
    put(workspace, random.Random(3), range(30))
    (before, _), _ = answers(address)
    assert before
    assert main(["nodes", f"--workspace={workspace}", "--quarantine=vm"]) == 0
    assert answers(address)[0] == [[], []]
    assert main(["nodes", f"--workspace={workspace}", "--forget=vm"]) == 0
    assert answers(address)[0][0] == before


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "perfrun.db-columns"
    old, young, foreign = (
        path.with_name(f"{path.name}.{end}") for end in ("a" * 32, "b" * 32, "c")
    )
    for one in (old, young, foreign):
        one.touch()
    for one in (old, foreign):
        os.utime(one, (0, 0))
    mark = columns.Mark(state="ab", uids="cd")
    trials, figures = np.empty(0, columns._TRIALS), np.empty(0, columns._FIGURES)
    columns._save(path, columns.StoreColumns(mark=mark, trials=trials, figures=figures))
    assert {*tmp_path.iterdir()} == {path, young, foreign}
