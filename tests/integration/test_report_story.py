"""A regression of a tenth: found by a night, confirmed, bisected, and told by the report."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.no_home import of_a_test
from tests.pages import read_page, unpack
from tests.story import BEFORE, CHANGES, CULPRIT, tell, told


@pytest.mark.slow
def test_the_page_tells_what_changed_that_it_is_true_and_who_did_it(tmp_path: Path) -> None:
    # CI names the folder in which `make site` has just told it, for the documentation's first page.
    before = os.environ.get("PERFRUN_TEST_STORY")
    story = told(Path(before)) if before else tell(tmp_path)
    hashes = story.hashes
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


def test_what_the_user_has_set_takes_no_part_in_the_story_of_make_site(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\nname = Somebody\n", encoding="utf-8")
    own = {"HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": str(tmp_path / ".gitconfig")}
    environment = of_a_test({"PATH": os.environ["PATH"], **own, "PERFRUN_PYTHON_TORCH": "python9"})
    words = ["git", "config", "--get-all", "user.name"]
    done = subprocess.run(words, cwd="/", env=environment, capture_output=True, text=True)
    assert done.stdout == ""
    assert "PERFRUN_PYTHON_TORCH" not in environment
