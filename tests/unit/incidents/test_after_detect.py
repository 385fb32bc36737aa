"""Changes that `perfrun detect --confirm` has decided, kept with the incidents."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from perfrun.changes.change_report import ChangeRow
from perfrun.changes.detect import find_changes, parser
from perfrun.changes.watched import choose_series
from perfrun.incidents import ledger
from perfrun.incidents.after_detect import keep_confirmed
from perfrun.store.command import bring_up_to_date, opened
from tests.unit.incidents.test_incidents import BACK, MANY, nights

PAIRS = {"reason": None, "ratio": 1.1, "low": 1.09, "high": 1.11, "pairs": 8}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Namespace, list[ChangeRow]]:
    """The changes of 38 nights: of one method in one night, of five in another."""
    workspace = tmp_path_factory.mktemp("history")
    nights(workspace, 0, 38)
    given = parser().parse_args([f"--workspace={workspace}", "--confirm"])
    with opened(given) as store:
        bring_up_to_date(store, given)
        chosen = choose_series(tuple(store.series(which="primary")), None, [], "")
    return given, list(find_changes(chosen.watched, chosen.left_out).rows)


def decided(rows: list[ChangeRow], status: str, *methods: str) -> list[ChangeRow]:
    return [
        replace(row, status=status, confirmation=PAIRS) if row.method in methods else row
        for row in rows
    ]


def test_what_pairs_have_decided_is_kept_and_told_once(
    history: tuple[Namespace, list[ChangeRow]],
) -> None:
    given, rows = history
    workspace = Path(given.workspace)
    confirmed = decided(rows, "confirmed", MANY[0])
    assert keep_confirmed(given, confirmed) == ()
    assert ledger.read(workspace).incidents == ()  # it keeps none

    (workspace / "nights").mkdir()
    assert keep_confirmed(given, rows) == ()  # no pair has decided
    told = ("incident 2 (new): 1 change confirmed; `perfrun incidents show 2`",)
    assert keep_confirmed(given, confirmed) == told
    back, many = ledger.read(workspace).incidents
    assert (back.methods, back.status, back.told) == ([BACK], "suspect", 0)
    assert (many.methods, many.status, many.told) == (MANY, "confirmed", 0)
    assert keep_confirmed(given, confirmed) == ()

    more = decided(confirmed, "confirmed", *MANY[:3])
    assert keep_confirmed(given, decided(more, "not_reproduced", BACK)) == (
        "incident 1: 1 change not reproduced; `perfrun incidents show 1`",
        "incident 2: 2 changes confirmed; `perfrun incidents show 2`",
    )
    back, many = ledger.read(workspace).incidents
    assert (back.status, many.status) == ("not_reproduced", "confirmed")

    (workspace / ledger.FILE).write_text("{")
    (said,) = keep_confirmed(given, more)
    assert said.startswith("incidents could not be brought up to date: ")
