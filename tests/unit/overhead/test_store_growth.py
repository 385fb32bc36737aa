"""The made-up stores of `overhead.store_growth` hold what a run's recorder would have written."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from overhead import store_growth
from perfrun.options.store_address import Address, parse_address
from perfrun.store.database import Database
from perfrun.store.index import open_store
from perfrun.store.recorder import IndexRecorder
from perfrun.store.schema import TABLES


def content(address: Address) -> Any:
    with open_store(address) as store:
        trials = [{**asdict(one), "path": ""} for one in store.trials()]
        series = [
            (one.key, one.unit, one.direction, [p._replace(summary_path="") for p in one.points])
            for one in store.series()
        ]
    with Database(address) as database, database.reading() as connection:
        counts = {
            name: connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one()
            for name in TABLES.tables
            if name != "places"  # where the workspaces lie
        }
    return trials, series, counts


@pytest.mark.parametrize("kind", ["file", pytest.param("server", marks=pytest.mark.postgresql)])
def test_a_made_up_store_holds_what_a_recorder_writes(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made = store_growth.Made(trials=75, methods=25, nights=3)
    stores = [str(tmp_path / "bulk.db"), str(tmp_path / "recorded.db")]
    if kind == "server":
        server = request.getfixturevalue("postgresql")
        stores = [server.new_database(), server.new_database()]
    bulk, recorded = (parse_address(store, tmp_path) for store in stores)
    store_growth.fill(bulk, made, range(2))
    store_growth.fill(bulk, made, [2])
    notes: list[str] = []
    recorder = IndexRecorder(recorded, notes.append)
    paths = []
    for night in range(made.nights):
        walls, peaks = store_growth.figures(night, made)
        for method in range(made.methods):
            own = store_growth.document(method, night, float(walls[method]), int(peaks[method]))
            node = tmp_path / f"node-{method % 20}"
            paths.append(node / store_growth.path_of(method, night))
            paths[-1].parent.mkdir(parents=True)
            paths[-1].write_text(json.dumps(own), encoding="utf-8")
    recorder._waiting = paths[:-1]  # as after an outage: all in one transaction
    recorder.add(paths[-1])
    assert not notes
    assert content(bulk) == content(recorded)


def test_the_power_of_growth_is_found_with_its_interval() -> None:
    sizes = [1e4, 1e5, 1e6, 5e6]
    assert store_growth.exponent(sizes, [3 * n**1.5 for n in sizes]) == pytest.approx((1.5, 0))
    power, half = store_growth.exponent(sizes, [1.0, 11.0, 90.0, 510.0])
    assert abs(power - 1) < half < 0.2
