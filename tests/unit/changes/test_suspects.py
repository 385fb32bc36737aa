"""Suspects: screened, kept from night to night, read as a stranger's, and listed by detect."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import schemas

from perfrun.benchmark import main
from perfrun.changes.budget import parse_night_budget
from perfrun.changes.confirm import Recorded
from perfrun.changes.observations import observations_of
from perfrun.changes.screen_pairs import Arms, SuspectPairs
from perfrun.changes.suspects import (
    FILE,
    MOST_PAIRS,
    SuspectSeries,
    SuspectState,
    merged,
    read_state,
    screen,
    suspect_of,
    write_state,
)
from perfrun.changes.watched import WatchedSeries, watch_series
from perfrun.compare.paired_runs import Pair, PairResult
from perfrun.errors import UsageError
from perfrun.nightly.suite_screening import _AskedTonight, _judged, confirmed_row
from perfrun.options.store_address import parse_address
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption
from perfrun.store.index import open_store
from perfrun.store.query import Origin, Origins, SeriesKey
from perfrun.summary.record import SummaryRecord, record_of
from tests.summaries import summary, write
from tests.unit.changes.test_detect import METHOD, document, nights

SUSPECT = SuspectSeries(
    series=("pkg.cases.Cases.spin", "wall_time", "e", "h", "", "s", "t"),
    direction="worse",
    first_day=739_000,
    before_day=738_999,
    after_day=739_000,
    before_summary="/w/output/a/perfzero_summary.json",
    after_summary="/w/output/b/perfzero_summary.json",
    before_execution_id="a",
    after_execution_id="b",
    shift=0.1,
    noise=0.01,
    odds=0.05,
    seen_day=739_000,
)


def page(workspace: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    main(["detect", f"--workspace={workspace}", *flags])
    return capsys.readouterr().out


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "work space"


def test_a_suspect_is_listed_with_its_evidence_and_its_cost(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights([1.0] * 40 + [1.12] * 2))
    text = page(workspace, capsys, "--screen")
    (line,) = (line for line in text.splitlines() if line.startswith("Suspect: wall_time"))
    assert f"wall_time of {METHOD} +1" in line
    assert "since 2026-07-11 (worse), 2 nights, p 0.00" in line
    assert "pairs would confirm it" in line
    code, found = document(workspace, capsys, "--screen")
    schemas.check("detect", found)
    (suspect,) = (one for one in found["suspects"] if one["metric"] == "wall_time")
    assert (suspect["direction"], suspect["nights"], suspect["pairs"], code) == ("worse", 2, 0, 0)
    assert 1.08 < suspect["ratio"] < 1.16
    assert suspect["more_pairs"] > 10

    # The pairs that nights have run are part of the belief.
    name = suspect["hardware"]
    kept = replace(SUSPECT, series=(METHOD, "wall_time", *_rest(workspace, name)))
    write_state(workspace, SuspectState(open=(replace(kept, alpha=1e-4, pairs=(0.1,) * 6),)))
    _, after = document(workspace, capsys, "--screen")
    (again,) = (one for one in after["suspects"] if one["metric"] == "wall_time")
    assert again["pairs"] == 6
    assert again["chance"] > suspect["chance"]
    assert again["more_pairs"] < suspect["more_pairs"]


def _rest(workspace: Path, hardware: str) -> tuple[str, ...]:
    with open_store(parse_address("", workspace)) as store:
        key = next(one.key for one in store.series(METHOD, "wall_time"))
    assert key.hardware == hardware
    return (key.environment, key.hardware, key.driver, key.source, key.settings)


def test_noise_has_no_suspects(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(workspace / "output", *nights([1.0] * 40, seed=4))
    assert "No suspects" in page(workspace, capsys, "--screen")
    assert "suspects" not in document(workspace, capsys)[1]


def test_the_state_comes_back_as_it_was_written(tmp_path: Path) -> None:
    state = SuspectState(
        open=(replace(SUSPECT, alpha=1e-4, pairs=(0.1, -0.02)),),
        confirmed=(replace(SUSPECT, told_day=739_001, told_in="n", commits_before={"r": "1"}),),
        allowed=0.002,
        at=1.0,
        spent_s={"n": 3.5},
    )
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert read_state(tmp_path / "none") == SuspectState()


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": 0.9, "pairs": [0.1]},
        {"pairs": [5.0]},  # without an error of its own
        {"alpha": 1e-4, "pairs": [0.1], "counted_from": 2},
        {"odds_since": -1.0},
        {"alpha": 1e-4, "pairs": [0.1] * (MOST_PAIRS + 1)},
        {"alpha": 1e-4, "pairs": [1e300]},
        {"odds": 1e9},
        {"shift": 0.0},
        {"noise": -1.0},
        {"first_day": 10**9},
        {"series": ["one"]},
        {"direction": "up"},
    ],
    ids=lambda wrong: ",".join(wrong),
)
def test_what_a_stranger_wrote_into_the_state_is_left_out(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    write_state(tmp_path, SuspectState(open=(SUSPECT, SUSPECT)))
    document = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    document["open"][0].update(wrong)
    document["confirmed"] = [document["open"][1]]  # and no night has told it
    (tmp_path / FILE).write_text(json.dumps(document), encoding="utf-8")
    assert read_state(tmp_path) == SuspectState(open=(SUSPECT,))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"allowed": 7}',
        '{"at": NaN}',
        '{"open": [1]}',
        '{"spent_s": {"n": -1}}',
        "[" * 9999,
    ],
)
def test_a_file_that_is_no_state_begins_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    assert read_state(tmp_path) == SuspectState()
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).symlink_to("/etc/passwd")
    assert read_state(tmp_path) == SuspectState()


def test_a_suspect_goes_on_with_its_pairs_until_other_sides_are_asked_for() -> None:
    known = replace(SUSPECT, alpha=1e-4, pairs=(0.1,) * 5)
    again = replace(SUSPECT, after_day=739_002, seen_day=739_002, odds=1.0)
    assert merged(known, again) == replace(known, seen_day=739_002, odds=1.0)
    later = replace(again, first_day=739_001)  # its change lies after the known one's new side
    assert merged(known, later) == later
    assert merged(known, replace(again, direction="better")).pairs == ()
    against = replace(known, pairs=(-0.1,) * 5)
    assert not against.goes_on
    assert merged(against, replace(again, before_day=738_990)).pairs == ()


TOLD = replace(SUSPECT, told_day=739_001, told_in="n")


def test_a_change_of_the_history_waits_for_its_pairs_unless_none_can_be_run() -> None:
    row = replace(confirmed_row(TOLD), status="candidate", confirmation=None)
    tonight = _AskedTonight(night="n", day=739_001 + 2, deadline=None)
    open_ = replace(SUSPECT, alpha=1e-4, pairs=(0.1,) * 5, asked_in="n")
    assert _judged(row, open_, tonight) is None
    against = _judged(row, replace(open_, pairs=(-0.1, 0.05) * 5), tonight)
    assert against is not None
    assert against.status == "not_reproduced"
    lost = _judged(row, replace(SUSPECT, why_not="not on record: its local edits"), tonight)
    assert lost is not None
    assert lost.status == "candidate"
    assert "local edits; so the history alone decides" in (lost.confirmation or {})["reason"]


def test_pairs_that_are_not_as_recorded_refute_nothing() -> None:
    row = replace(confirmed_row(TOLD), status="candidate", confirmation=None)
    tonight = _AskedTonight(night="n", day=739_001, deadline=None)
    pairs = (-0.1, 0.05) * 5
    unlike = ("after: torch 2.12 -> 2.13",)
    one = replace(SUSPECT, alpha=1e-4, pairs=pairs, not_reconstructed=unlike)
    told = _judged(row, one, tonight)
    assert told is not None
    assert told.status == "candidate"
    assert (told.confirmation or {})["reason"].startswith("not there, but the trials could not be")
    assert (told.confirmation or {})["not_reconstructed"] == list(unlike)


def pairs_of_night(workspace: Path, day: int = 739_001) -> SuspectPairs:
    screen = Terminal(sys.stderr, sys.stderr, quiet=True)
    return SuspectPairs(
        workspace, "n", day, {SUSPECT.method}, 60.0, screen, Interruption(), deadline=None
    )


def decided(one: SuspectSeries, *pairs: Pair) -> PairResult:
    return PairResult(
        pairs={one.method: pairs},
        stopped_by={one.method: "decided"},
        seed=1,
        run_ids={},
        interrupted=False,
        pair_s={},
    )


def test_a_refuted_suspect_gives_its_error_back_and_gets_another_when_it_goes_on(
    tmp_path: Path,
) -> None:
    pairs = pairs_of_night(tmp_path)
    before = pairs._pot.allowed
    one = pairs._with_alpha(SUSPECT)
    assert one.alpha == pytest.approx(before - pairs._pot.allowed)
    assert one.asked_odds == SUSPECT.odds
    spent = one.alpha
    one = replace(one, pairs=(-0.1,) * 4)
    assert one.evidence < 0
    pairs.open[one.series] = one
    pairs._arms[one.series] = Arms(recorded={}, plans={}, pair_s=1.0)
    pairs._take(decided(one), one, [one.series])
    state = read_state(tmp_path)
    assert state.open[0].alpha == 0
    used = spent * (1 - math.exp(one.evidence))
    assert state.allowed == pytest.approx(before - used)
    again = pairs._with_alpha(replace(state.open[0], odds=5.0))
    assert (again.counted_from, again.asked_odds, again.evidence) == (4, SUSPECT.odds, 0)
    assert again.alpha > 0


def test_a_suspect_that_is_forgotten_or_replaced_gives_its_error_back(tmp_path: Path) -> None:
    kept = replace(SUSPECT, alpha=0.001, pairs=(0.1,))
    write_state(tmp_path, SuspectState(open=(kept,), allowed=0.002))
    forgotten = pairs_of_night(tmp_path, day=SUSPECT.seen_day + 8)
    assert (forgotten.open, forgotten._pot.allowed) == ({}, pytest.approx(0.003))
    pairs = pairs_of_night(tmp_path)
    assert pairs._pot.allowed == pytest.approx(0.002)
    assert pairs._merged(kept) == kept  # the same goes on
    assert pairs._pot.allowed == pytest.approx(0.002)
    other = replace(SUSPECT, direction="better", shift=-0.1)
    assert pairs._merged(other) == other
    assert pairs._pot.allowed == pytest.approx(0.003)


def test_the_differences_of_pairs_are_kept_whatever_they_say(tmp_path: Path) -> None:
    def record(cpu: str) -> SummaryRecord:
        document = summary(version="1")
        document["system_info"]["cpu_model"] = cpu
        return record_of(document, tmp_path)

    pairs = pairs_of_night(tmp_path)
    one = replace(SUSPECT, alpha=1e-4)
    pairs.open[one.series] = one
    recorded: Recorded = {"a": record("AMD EPYC"), "b": record("AMD EPYC")}
    pairs._arms[one.series] = Arms(recorded=recorded, plans={}, pair_s=1.0)
    again = Pair(number=1, first="a", a=record("Xeon"), b=record("AMD EPYC"))
    pairs._take(decided(one, again), one, [one.series])
    (difference,) = read_state(tmp_path).open[0].not_reconstructed
    assert difference.startswith("before: ")
    assert "Xeon" in difference


@pytest.mark.parametrize(
    ("asked_in", "nights", "deadline", "reason"),
    [
        ("n", 3, None, "the time for pairs was spent before they had decided"),
        ("the night before", 1, None, "the time for pairs was spent before they had decided"),
        ("", 0, 1.0, "the deadline came first"),
    ],
    ids=["waited for some nights", "had no time tonight", "had no time at all"],
)
def test_a_change_of_the_history_does_not_wait_for_pairs_that_get_no_time(
    asked_in: str, nights: int, deadline: float | None, reason: str
) -> None:
    row = replace(confirmed_row(TOLD), status="candidate", confirmation=None)
    tonight = _AskedTonight(night="n", day=739_001 + nights, deadline=deadline)
    told = _judged(row, replace(SUSPECT, asked_in=asked_in), tonight)
    assert told is not None
    assert (told.status, (told.confirmation or {})["reason"]) == ("candidate", reason)


def test_the_time_of_a_night_for_pairs_is_a_duration_or_a_share() -> None:
    assert parse_night_budget("30m", "x").seconds(7.0) == 1800
    assert parse_night_budget("20 %", "x").seconds(600.0) == pytest.approx(120)
    for text in ("0%", "900%", "-5%", "half", "nan%"):
        with pytest.raises(UsageError):
            parse_night_budget(text, "confirm_budget")
    assert math.isinf(confirmed_row(TOLD).high)  # without pairs nothing is known of its size


def test_a_refuted_suspect_is_asked_again_with_an_earlier_side(workspace: Path) -> None:
    write(workspace / "output", *nights([1.0] * 40 + [1.12] * 3))
    with open_store(parse_address("", workspace)) as store:
        store.refresh()
        (one,) = watch_series(store.series(METHOD, "wall_time"))[0]
    (screened,) = screen([one], [0])
    # As if the nights since it was refuted said nothing by themselves.
    screened = replace(screened, found=replace(screened.found, odds_by_count=()))
    first = suspect_of(screened)
    assert first.before_day < first.first_day <= first.after_day
    refuted = replace(
        first, after_day=first.after_day - 1, alpha=1e-4, asked_odds=0.01, pairs=(-0.1,) * 4
    )
    again = suspect_of(screened, refuted)
    assert again.before_day == first.before_day - 5
    twice = suspect_of(screened, replace(refuted, before_day=again.before_day))
    assert twice.before_day == first.before_day - 10
    assert merged(refuted, again) == again
    # The nights do not say much more than when it was refuted, or its pairs are for it.
    assert suspect_of(screened, replace(refuted, asked_odds=first.odds)) == first
    for_it = replace(refuted, pairs=(0.1,) * 4)
    assert suspect_of(screened, for_it) == first
    assert merged(for_it, first) == replace(for_it, seen_day=first.seen_day, odds=first.odds)


def test_the_nights_since_a_refuted_question_raise_another_one(workspace: Path) -> None:
    write(workspace / "output", *nights([1.0] * 40 + [1.12] * 3))
    with open_store(parse_address("", workspace)) as store:
        store.refresh()
        (one,) = watch_series(store.series(METHOD, "wall_time"))[0]
    (screened,) = screen([one], [0])
    first = suspect_of(screened)
    known = replace(first, after_day=first.first_day, asked_odds=first.odds, alpha=1e-4)
    against, for_it = (replace(known, pairs=(sign * 0.1,) * 4) for sign in (-1, 1))
    anew = suspect_of(screened, against)
    assert anew.odds_since == pytest.approx(screened.found.odds_within(2))
    assert 0.01 < anew.odds_since <= anew.odds
    assert merged(against, anew) == anew
    assert merged(for_it, anew).pairs == for_it.pairs
    assert merged(against, replace(anew, odds_since=0.001)).pairs == against.pairs
    newest = replace(against, after_day=first.after_day)  # no night since
    assert suspect_of(screened, newest).odds_since == 0


def test_a_suspect_that_got_its_error_anew_counts_the_pairs_from_there() -> None:
    told = replace(SUSPECT, alpha=1e-4, pairs=(-0.1,) * 2 + (0.1,) * 16)
    whole, anew = told, replace(told, counted_from=2)
    assert whole.log_pairs == anew.log_pairs == pytest.approx(whole.evidence)
    assert anew.evidence > whole.evidence + 5
    assert (whole.is_proven, anew.is_proven) == (False, True)
    assert not replace(anew, alpha=0.0).is_proven


def watched_of(name: str, logs: Sequence[float], *, a_night: int = 1) -> WatchedSeries:
    """Return a series of so many runs a night."""
    rows = [
        Origin(
            execution_id=f"{name}-{at}",
            run_id=f"run-{name}-{at}",
            timestamp=1.79e9 + at // a_night * 86400 + at % a_night * 60,
            status="passed",
            grade="A",
            disturbed=False,
            commits={},
            label="",
            summary_path="",
        )
        for at in range(len(logs))
    ]
    parts = {"environment": "e", "hardware": "h"}
    key = SeriesKey(method=name, metric="", driver="", source="", settings="", **parts)
    return WatchedSeries(
        method=name,
        metric="wall_time",
        direction="lower",
        observations=observations_of(Origins(rows), np.exp(logs).tolist()),
        is_canary=False,
        subject=key,
        **parts,
    )


def test_a_step_of_most_of_a_suite_makes_no_suspects_of_the_others() -> None:
    logs = 0.006 * np.random.default_rng(1).standard_normal((10, 70))
    logs[:6, 30:] += math.log(1.06)
    for night in (40, 44, 62):  # the step was found long before
        watched = [watched_of(f"m{at}", own[: night + 1]) for at, own in enumerate(logs)]
        assert screen(watched, [30] * 6 + [0] * 4) == []


def test_the_runs_of_one_series_are_not_what_a_night_did_to_all() -> None:
    logs = 0.006 * np.random.default_rng(1).standard_normal((2, 400))
    logs[0, -8:] += 0.08
    watched = [watched_of(name, own, a_night=8) for name, own in zip("ab", logs, strict=True)]
    assert [one.one.method for one in screen(watched, [0, 0])] == ["a"]
