"""A regression of a tenth: found by a night, confirmed, bisected, and told by the report."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.pages import read_page, unpack
from tests.story import BEFORE, CHANGES, CULPRIT, tell, told


@pytest.mark.slow
def test_the_page_tells_what_changed_that_it_is_true_and_who_did_it(tmp_path: Path) -> None:
    # CI names the folder in which `make site` has just told it, for the documentation's first page.
    before = os.environ.get("PERFRUN_TEST_STORY")
    story = told(Path(before)) if before else tell(tmp_path)
    hashes = story.hashes
    assert story.night["code"] == 1, story.night["stderr"]
    assert story.bisect["status"] == "found"
    html = story.page.read_text(encoding="utf-8")
    data = read_page(html).data

    change = data["changes"][0]
    assert (change["direction"], change["status"], change["pairs"]) == ("worse", "confirmed", 8)
    assert change["is_recent"]
    assert change["ratio"] == pytest.approx(1.1, rel=0.01)
    assert change["text"].startswith("confirmed by 8 pairs: 1.1")
    assert change["commits"] == [f"repo {hashes[0][:10]}..{hashes[3][:10]}"]
    culprit = change["culprit"]
    assert (culprit["commit"], culprit["subject"]) == (hashes[CULPRIT], CHANGES[CULPRIT][0])
    assert culprit["author"] == "A <a@example.com>"
    assert culprit["low"] < 1.1 < culprit["high"] or culprit["ratio"] == pytest.approx(
        1.1, rel=0.01
    )
    series = data["series"][change["series"]]
    assert series["metric"] == "wall_time"
    values = unpack(data, series["value"])
    assert min(map(float, values[BEFORE:])) > max(map(float, values[:BEFORE]))
    assert change["at"] == BEFORE
    assert change["environment"] == []  # the commit has its own place
    assert 0 < data["methods"][0]["noise"] < 0.01  # though all nights before were disturbed
    subjects = {one["id"]: one["subject"] for one in data["commits"]}
    assert subjects[hashes[0][:12]] == CHANGES[0][0]
    (pairs,) = (one for one in data["pairs"] if one["series"] == change["series"])
    base, new = unpack(data, pairs["base"]), unpack(data, pairs["new"])
    assert (len(base), len(new)) == (8, 8)
    assert all(1.09 < b / a < 1.11 for a, b in zip(base, new, strict=True) if a and b)
    # Without JavaScript, too.
    assert "confirmed by 8 pairs" in html.partition("<noscript>")[2].partition("</noscript>")[0]
