"""Sixty real nights on a git history with planted faults: each is listed with its cause, no other.

Three commits slow a method by 20, 10 and 5 %, one method drifts, the commit of one night cannot be
imported, and in one the machine is changed: it runs another kernel, and everything slower.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from sixty_nights import BROKEN, CANARY, DRIFT, DRIFTING, FIRST, MACHINE, METHODS, NIGHTS, STEPS

SCRIPT = Path(__file__).resolve().parent / "sixty_nights.py"


def date_of(night: int) -> str:
    return (FIRST + timedelta(days=night)).date().isoformat()


def days(one: str, other: str) -> int:
    return abs((date.fromisoformat(one) - date.fromisoformat(other)).days)


def own_name(method: str) -> str:
    return method.rpartition(".")[2]


def carried_out(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
    )
    assert done.returncode == 0, done.stdout[-5000:]
    found: dict[str, Any] = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_sixty_nights_tell_what_was_planted_with_its_cause_and_nothing_else() -> None:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="perfrun-sixty-", dir=base) as parent:
        told = carried_out(Path(parent) / "site")
    check_incidents(told)
    check_alarms(told)


def shortened(incident: dict[str, Any]) -> str:
    """What a failure of this test needs to be understood, in one line."""
    steps = [
        f"{own_name(one['method'])} {one['night']}..{one['alarm_night']} {one['ratio']:.3f} "
        f"{one['status']}"
        for one in incident["changes"]
    ]
    return f"{incident['status']} {incident['cause']['kind']}: {', '.join(steps)}"


def check_incidents(told: dict[str, Any]) -> None:
    """The list at the end has the planted faults, each with its cause."""
    of_methods = {tuple(map(own_name, one["methods"])): one for one in told["incidents"]}
    machine = tuple(sorted((*METHODS, CANARY)))
    planted = {(name,) for name in (*STEPS, DRIFT)} | {machine}
    assert set(of_methods) == planted, list(map(shortened, told["incidents"]))
    assert len(told["incidents"]) == len(of_methods)
    assert {change["metric"] for one in told["incidents"] for change in one["changes"]} == {
        "wall_time"
    }
    for name, (night, factor) in STEPS.items():
        one, commits = of_methods[name,], told["slowed"][name]
        assert (one["status"], one["cause"]["kind"]) == ("confirmed", "commits"), one
        assert one["cause"]["commits"] == {"repo": [commits["good"], commits["bad"]]}
        assert one["night"] == date_of(night)
        assert one["changes"][0]["ratio"] == pytest.approx(factor, abs=0.015)
    drift = of_methods[DRIFT,]["cause"]
    assert drift["kind"] == "drift"
    assert days(drift["drift"]["begin"], date_of(DRIFTING.start)) <= 5
    assert days(drift["drift"]["end"], date_of(DRIFTING.stop)) <= 5
    assert drift["drift"]["ratio"] == pytest.approx(1.003**30, abs=0.015)
    changed = of_methods[machine]
    assert (changed["night"], changed["cause"]["kind"]) == (date_of(MACHINE), "machine")
    assert [text.split()[0] for text in changed["cause"]["differences"]] == ["kernel"]


def check_alarms(told: dict[str, Any]) -> None:
    """Each was told once, soon, and the broken night as such."""
    nights = told["nights"]
    assert len(nights) == NIGHTS
    broken = nights[BROKEN]
    assert broken["code"] == 1
    assert {method["state"] for method in broken["methods"]} == {"failed"}
    assert all("SyntaxError" in method["why"] for method in broken["methods"]), broken["methods"]
    assert [one["news"] for one in broken["incidents"] if one["news"] != "known"] == []
    assert all(method["state"] == "ok" for method in nights[BROKEN + 1]["methods"])
    news: dict[str, list[int]] = {}
    for number, night in enumerate(nights):
        for one in night["incidents"]:
            if one["news"] != "known":
                news.setdefault(f"{one['news']} {one['id']}", []).append(number)
    new = {key: found for key, found in news.items() if key.startswith("new")}
    assert len(new) == len(told["incidents"])
    assert all(len(found) == 1 for found in new.values()), news
    assert not any(key.startswith("fixed") for key in news)
    told_in = {number for found in news.values() for number in found}
    assert {number for number, night in enumerate(nights) if night["code"]} <= {BROKEN, *told_in}
    for one in told["incidents"]:
        if len(one["methods"]) == 1 and one["cause"]["kind"] == "commits":
            (number,) = new[f"new {one['id']}"]
            night, _ = STEPS[own_name(one["methods"][0])]
            assert number - night <= 7  # the history alone takes seven
