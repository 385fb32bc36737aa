"""A slowed commit is confirmed by pairs in the night after it, which is interrupted meanwhile."""

from __future__ import annotations

import json
import signal
from datetime import datetime, timezone
from pathlib import Path

import pytest
import schemas

from tests.integration.test_nightly_confirm import BEFORE, METHOD, SUITE, Place
from tests.worlds import finish, strict, wait_held

SCREENED = SUITE.replace("[confirm]\nmax_pairs = 12\n", 'confirm_budget = "20m"\n')


@pytest.mark.slow
def test_a_slowed_commit_is_confirmed_in_the_night_after_it(tmp_path: Path) -> None:
    assert "confirm_budget" in SCREENED
    place = Place(tmp_path / "a b", SCREENED)
    # A night's date changes at noon. Where this suite runs it is between midnight and one o'clock.
    place.world.settings["TZ"] = f"UTC+{datetime.now(timezone.utc).hour}"
    # Tonight's trial is the first of the slowed commit. Its memory must be no suspect: no two
    # processes are of one size.
    place.past(BEFORE, sizes=8.0)
    # Tonight's own trial, two pairs, and one of the third pair, which has no end.
    held = {"HOLD_AT": "6", "HOLD_IN": str(tmp_path)}
    process = place.world.start_words(place.words, **held)
    wait_held(process, tmp_path / "held")
    process.send_signal(signal.SIGINT)
    stopped = finish(process)
    assert stopped.code == 130, stopped.stderr
    kept = json.loads((place.world.workspace / "suspects.json").read_text(encoding="utf-8"))
    (suspect,) = (one for one in kept["open"] if one["series"][1] == "wall_time")
    assert len(suspect["pairs"]) == 2

    done = place.world.run_words(place.words)
    report = strict(done.stdout)
    schemas.check("nightly", report)
    (change,) = (c for c in report["changes"] if c["metric"] == "wall_time")
    assert (change["status"], change["is_new"], done.code) == ("confirmed", True, 1), report
    assert change["night"] == change["alarm_night"]
    assert 1.4 < change["ratio"] < 1.6
    pairs = change["confirmation"]["pairs"]
    assert place.pairs() == 2 * pairs + 1  # nothing ran twice but what was cut short
    commits = [change[f"commits_{when}"]["repo"] for when in ("before", "after")]
    assert commits == place.hashes
    (note,) = (text for text in report["notes"] if f"of {METHOD}" in text and "confirmed" in text)
    assert f"confirmed by {pairs} pairs, in the first night at the new level" in note

    # It has been told, and stays in the reports; no pair is run for it again.
    again = place.world.run_words(place.words)
    (change,) = (c for c in strict(again.stdout)["changes"] if c["metric"] == "wall_time")
    assert (change["status"], change["is_new"], again.code) == ("confirmed", False, 0)
    assert place.pairs() == 2 * pairs + 1
