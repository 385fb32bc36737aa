"""Creep against a pinned baseline: slow drifts, those that come back, cuts, and noise alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfrun.analysis.detection import watch_suite
from perfrun.benchmark import main
from perfrun.changes.creep import Creep, CreepRule, Turn, creep_of, find_pin, new_lines
from perfrun.changes.cuts import cuts_of
from perfrun.changes.watched import choose_series, history_of
from perfrun.nightly.report import report_document
from perfrun.nightly.suite import EnvironmentSpec, Night, Suite
from perfrun.nightly.suite_changes import recent_changes, with_changes
from perfrun.options.store_address import parse_address
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption
from perfrun.store.index import open_store
from perfrun.store.query import Origins
from simulations.creep import ever_passed, passed
from simulations.detect import KINDS
from tests import schemas
from tests.summaries import write
from tests.unit.changes.test_detect import BEGIN, METHOD, nights
from tests.unit.nightly.test_suite_changes import method as reported
from tests.unit.nightly.test_suite_changes import report

PINNED = "2026-06-05"  # the fifth night


def drift(count: int, share: float) -> list[float]:
    return [(1 + share) ** number for number in range(count)]


def driver_from(first: int) -> Any:
    def change(number: int) -> dict[str, Any]:
        version = "570" if number < first else "580"
        return {"system": {"accelerator_model": "H100", "accelerator_driver_version": version}}

    return change


def creep(
    workspace: Path, baseline: str = PINNED, bound: float = 0.05, *, known: int | None = None
) -> Creep:
    """Creep as of the first so many nights."""
    rule = CreepRule(baseline=baseline, bound=bound)
    with open_store(parse_address(None, workspace)) as store:
        store.refresh()
        series = [
            replace(one, origins=Origins(one.origins.rows[:known]), values=one.values[:known])
            for one in store.series(metric="wall_time")
        ]
        chosen = choose_series(series)
        several = (*chosen.watched, *chosen.short)
        watches = watch_suite([history_of(one) for one in several])
    return creep_of(several, watches, cuts_of(several, watches), find_pin(rule, workspace), bound)


def planted(workspace: Path, factors: Sequence[float], **facts: Any) -> Path:
    write(workspace / "output", *nights(factors, **facts))
    return workspace


def test_a_drift_that_no_night_shows_is_reported_once_it_is_beyond_the_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted(tmp_path, drift(100, 0.001))
    place = f"--workspace={tmp_path}"
    assert main(["detect", place]) == 0  # no change by the rules
    capsys.readouterr()
    assert main(["detect", place, f"--creep_baseline={PINNED}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"wall_time of {METHOD} +")
    assert f"since {PINNED}, worse: beyond 5 % since 2026-08-" in lines[0]
    assert lines[0].endswith(", though no single night shows a change")
    assert lines[1] == f"Against {PINNED}: 2 series compared."
    assert main(["detect", place, f"--creep_baseline={PINNED}", "--creep_bound=20%"]) == 0
    capsys.readouterr()
    flags = ("--format=json", f"--creep_baseline={PINNED}")
    assert main(["detect", place, *flags]) == 1
    document = json.loads(capsys.readouterr().out)
    assert not schemas.wrong("detect", document)
    (row,) = document["creep"]["rows"]
    middles = 1.001 ** (100 - 14 - 4)  # between the middles of both fortnights
    assert row["low"] < middles < row["high"]
    assert row["low"] > 1.05
    assert (row["state"], row["direction"], row["changes"]) == ("beyond", "worse", 0)
    # With --since, only what passed the bound since then is a failure.
    assert main(["detect", place, *flags, "--since=2026-09-05"]) == 0


def test_a_night_tells_it_once_when_it_passes_and_once_when_it_is_back(tmp_path: Path) -> None:
    up = drift(90, 0.001)
    factors = [*up, *(up[-1] * value for value in drift(90, -0.001))]
    planted(tmp_path, factors)
    told = []
    for count in range(60, 181, 10):  # every tenth night is the last one known
        rows = creep(tmp_path, known=count).rows
        told.append(rows[0] if rows else None)
    states = [row.state if row else None for row in told]
    changes = [state for at, state in enumerate(states) if at == 0 or states[at - 1] != state]
    assert changes == [None, "beyond", "returned"]
    # Whatever is known later, the nights that made it sure stay the same: it is said once.
    for state in ("beyond", "returned"):
        assert len({row.night for row in told if row and row.state == state}) == 1


def test_the_report_of_the_night_that_made_it_sure_has_the_note(tmp_path: Path) -> None:
    planted(tmp_path, drift(100, 0.001))
    documents = (tmp_path / "output").glob("*/perfzero_summary.json")
    for path in documents:  # the label of a night's trials is its id
        document = json.loads(path.read_text())
        document["benchmark_info"]["execution_label"] = document["execution_id"][-3:]
        path.write_text(json.dumps(document))
    found = creep(tmp_path)
    (row,) = found.rows
    (line,) = new_lines(found, Turn(row.label, row.timestamp))
    night = date.fromisoformat(row.night).toordinal() - date(2026, 6, 1).toordinal()
    assert row.label == f"{night:03}"
    rule = CreepRule(baseline=PINNED)

    def notes(label: str, rule: CreepRule) -> tuple[str, ...]:
        with open_store(parse_address(None, tmp_path)) as store:
            begun = BEGIN + int(label) * 86400
            return recent_changes(
                store, [reported(METHOD)], label, begun, creep=rule, workspace=tmp_path
            ).outlook

    assert line in notes(row.label, rule)
    assert line not in notes(f"{night + 1:03}", rule)
    missing = notes(row.label, CreepRule(baseline="v1"))
    assert any("nothing was compared with it: there is no baseline 'v1'" in one for one in missing)


@pytest.mark.parametrize(
    ("case", "told_by"),
    [
        ("ended", [0]),
        ("given up", [1]),
        ("given up as all before it", [1]),
        ("by hand", [0]),
        ("by hand after the night began", [1]),
        ("by hand before a night without figures", [2]),
    ],
)
def test_what_a_night_could_not_tell_the_next_one_tells_and_no_other(
    case: str, told_by: list[int], tmp_path: Path
) -> None:
    planted(tmp_path, drift(100, 0.001))
    (row,) = creep(tmp_path).rows
    known, untold, found = [], set(), []
    for path in (tmp_path / "output").glob("*/perfzero_summary.json"):
        document = json.loads(path.read_text())
        if document["execution_timestamp"] == row.timestamp:
            label = "by hand" if case.startswith("by hand") else "n0"
            document["benchmark_info"]["execution_label"] = label
            path.write_text(json.dumps(document))
    suite = Suite(
        path=tmp_path / "s.toml",
        name="n",
        digest="d",
        workspace=tmp_path,
        methods=(),
        environments=(EnvironmentSpec(name="here"),),
        creep=CreepRule(baseline=PINNED),
    )
    after_begin = -7200 if case == "by hand" else 60
    for number in range(-1, 4):
        night = Night(night=f"n{number}", begun=row.timestamp + number * 86400 - after_begin)
        method = reported(METHOD)
        if case.endswith("without figures") and number == 1:
            method = replace(method, figures=())
        tonight = replace(report([]), night=night.night, begun=night.begun, methods=(method,))
        made, told = with_changes(
            suite,
            tonight,
            known[::-1],
            untold,
            Terminal(sys.stdout, sys.stderr, quiet=True),
            Interruption(),
        )
        assert (told, made.errors) == (True, ())
        if (number == 0 and case == "given up") or (number < 1 and case.endswith("before it")):
            untold.add(night.night)
            continue
        if any(f"since {PINNED}" in note for note in made.notes):
            found.append(number)
        known.append((night, report_document(made)))
    assert found == told_by


def test_a_baseline_of_the_workspace_pins_the_nights_from_its_first_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted(tmp_path, drift(100, 0.001))
    place = f"--workspace={tmp_path}"
    assert main(["baseline", "set", "v1", "run:run-004", place]) == 0
    by_name, by_date = creep(tmp_path, "v1"), creep(tmp_path, PINNED)
    assert by_name.rows == by_date.rows != ()
    capsys.readouterr()
    assert main(["detect", place, "--creep_baseline=v2"]) == 2
    assert "there is no baseline 'v2'" in capsys.readouterr().err
    assert main(["detect", place, "--creep_bound=2%"]) == 2
    assert "--creep_bound is of --creep_baseline" in capsys.readouterr().err


def test_across_a_cut_the_known_step_is_left_out_and_an_unknown_one_ends_it(
    tmp_path: Path,
) -> None:
    slow = drift(120, 0.001)
    stepped = [value * (1.0 if number < 60 else 1.3) for number, value in enumerate(slow)]
    (row,) = creep(planted(tmp_path / "step", stepped, change=driver_from(60))).rows
    assert 1.05 < row.low < row.ratio < row.high < 1.15  # 30 % of it are the driver's
    flat = [1.0 if number < 60 else 1.3 for number in range(120)]
    found = creep(planted(tmp_path / "flat", flat, change=driver_from(60)))
    assert (found.compared, found.rows) == (1, ())
    young = creep(planted(tmp_path / "young", slow[:62], change=driver_from(60)))
    assert (young.compared, young.not_comparable) == (0, 1)
    later = creep(tmp_path / "flat", "2026-07-01", 0.05)
    assert later.compared == 1
    soon = creep(tmp_path / "step", "2026-05-30", 0.05)  # two nights before the first
    assert soon.rows[0].since == "2026-06-01"
    before = creep(tmp_path / "flat", "2026-05-01")
    assert (before.compared, before.not_comparable) == (0, 1)


def test_noise_alone_never_passes_the_bound_and_a_drift_in_it_does() -> None:
    nights_known = np.arange(200)
    for number, (kind, noise) in enumerate(KINDS.items()):
        table = noise(np.random.default_rng([11, number]), (60, 200), 0.02)
        assert ever_passed(table) == 0, kind
        told = passed(table * 1.0008**nights_known)
        assert np.isfinite(told).mean() >= 0.96, kind
        assert told.min() > 61  # the drift is 5 % after 61 nights
