"""Searches that judge only what is new find what a search of everything finds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun.analysis.changepoint import SeriesWatch
from perfrun.analysis.detection import Detected, History, changes_of, watch_suite
from perfrun.analysis.kept_scans import NOTED, KeptScans
from perfrun.analysis.outlook import unsure_shifts
from perfrun.analysis.scan import SeriesToScan, scan_series
from perfrun.changes import scan_file
from perfrun.changes.scan_file import kept_scans

NIGHTS = 110  # more than a verdict rests on


def made(seed: int, count: int) -> list[History]:
    """Return series of noise, some of which change, several of them in one night."""
    draw = np.random.default_rng(seed)
    noise = draw.normal(0, 0.02, (count, NIGHTS))
    if seed % 2:
        for night in range(1, NIGHTS):
            noise[:, night] += 0.6 * noise[:, night - 1]
    for number in range(count):
        for _ in range(draw.integers(0, 3)):
            noise[number, draw.integers(0, NIGHTS) :] += draw.choice((0.3, 0.05, -0.1))
    noise[: count // 2, NIGHTS // 2 :] += 0.12
    repeats = draw.random((count, NIGHTS)) < 0.3
    repeats[::3] = False
    return [
        History(
            values=np.exp(own).tolist(),
            nights=list(range(NIGHTS)),
            direction="lower",
            is_canary=not number,
            repeats=repeats[number].tolist(),
            name=f"series {number}",
        )
        for number, own in enumerate(noise)
    ]


def found(histories: Sequence[History], kept: KeptScans | None, **limits: float) -> Any:
    watches = watch_suite(histories, kept=kept, **limits)
    changes: tuple[Detected, ...] = changes_of(histories, watches)
    return changes, list(map(said, watches)), unsure_shifts(histories, watches, 5)


def said(watch: SeriesWatch) -> Any:
    """Return all that was said of the observations at which a rule looks."""
    noted = (watch.score_p_values <= NOTED) | watch.separation
    columns = (watch.p_values, watch.score_p_values, watch.energy_p_values, watch.separation)
    return watch.start, np.flatnonzero(noted).tolist(), [own[noted].tolist() for own in columns]


def without(one: History, places: set[int]) -> History:
    every = zip(one.values, one.nights, one.repeats, strict=True)
    values, nights, repeats = [], [], []
    for at, (value, night, is_repeat) in enumerate(every):
        if at not in places:
            values.append(value)
            nights.append(night)
            repeats.append(is_repeat)
    return replace(one, values=values, nights=nights, repeats=repeats)


def changed(draw: random.Random, one: History) -> History:
    """Return a history in which something of the past is another one, or nothing."""
    values, nights, repeats = list(one.values), list(one.nights), list(one.repeats)
    kind = draw.choice(("same", "same", "late", "removed", "rewritten", "moved", "twice", "known"))
    if not values or kind == "same":
        return one
    at = draw.randrange(len(values))
    if kind == "removed":
        return without(one, {at})
    if kind == "rewritten":
        values[at] *= draw.choice((1.5, 0.999))
    elif kind == "moved":  # the order of commits became known
        values.insert(draw.randrange(len(values)), values.pop(at))
    elif kind == "known":  # what a trial ran
        repeats[at] = not repeats[at]
    else:  # a result that came late, or a second one of the night
        values.insert(at, values[at] * 1.01)
        nights.insert(at, nights[at])
        repeats.insert(at, False)
    return replace(one, values=values, nights=nights, repeats=repeats)


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), count=st.sampled_from((3, 24, 60)))
def test_what_is_kept_changes_no_answer_whatever_happens_to_the_histories(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int
) -> None:
    draw, path = random.Random(seed), tmp_path_factory.mktemp("kept") / "scans"
    whole = made(seed, count)
    nights = draw.randrange(10, NIGHTS - 4)
    for step in range(5):
        known = range(nights + draw.randrange(step, step + 3), NIGHTS)
        histories = [changed(draw, without(one, set(known))) for one in whole]
        if step == 3:
            draw.shuffle(histories)
            histories = histories[: max(1, count - 2)]  # series are left out, another order
        limits = {"false_discoveries": draw.choice((0.05, 0.01)), "min_effect": 0.01 * step}
        expected = found(histories, None, **limits)
        with kept_scans(path) as kept:
            assert found(histories, kept, **limits) == expected
        with kept_scans(path) as again:
            assert found(histories, again, **limits) == expected
            assert again is not None
            assert again.judged == 0  # by now all is known


def test_only_new_observations_are_judged(tmp_path: Path) -> None:
    histories = made(2, 40)
    first, last = ([without(one, set(range(end, NIGHTS))) for one in histories] for end in (60, 61))
    with kept_scans(tmp_path / "scans") as kept:
        assert found(first, kept)[0]
    with kept_scans(tmp_path / "scans") as kept:
        assert kept is not None
        changes = found(last, kept)[0]
    # One of each series, and one of each level that began since.
    assert 40 <= kept.judged <= 40 + len(changes)
    with kept_scans(tmp_path / "scans") as kept:
        assert kept is not None
        late = [changed(random.Random(0), last[0]), *last[1:]]
        late[0] = replace(late[0], values=[2.0, *late[0].values], nights=[0, *late[0].nights])
        found(late, kept)
    assert 0 < kept.judged <= 62 * (1 + len(changes))  # of the one series


def test_looser_limits_than_what_is_kept_tells_are_judged_anew(tmp_path: Path) -> None:
    histories = made(4, 30)
    with kept_scans(tmp_path / "scans") as kept:
        found(histories, kept)
        assert kept is not None
        judged = kept.judged
        loose = found(histories, kept, alarm=0.2, false_discoveries=0.3)
        assert kept.judged == judged
    assert loose == found(histories, None, alarm=0.2, false_discoveries=0.3)


def test_another_method_library_or_processor_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories, path = made(4, 5), tmp_path / "scans"
    for name, other in (
        ("method", lambda: "another"),
        ("method", lambda: ""),  # unknown
    ):
        with kept_scans(path) as kept:
            found(histories, kept)
        with monkeypatch.context() as context:
            context.setattr(scan_file, name, other)
            with kept_scans(path) as kept:
                assert kept is None or not kept.known
    before = scan_file.method()
    monkeypatch.setattr(np, "__version__", "0")
    assert scan_file.method() != before


def test_a_damaged_or_foreign_file_is_none_and_never_an_error(tmp_path: Path) -> None:
    histories, path = made(6, 30), tmp_path / "scans"
    with kept_scans(path) as kept:
        expected = found(histories, kept)
    content = path.read_bytes()
    for seed in range(60):
        draw, damaged = random.Random(seed), bytearray(content)
        for _ in range(draw.choice((1, 2, 30))):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged[: draw.choice((len(damaged), draw.randrange(len(damaged))))])
        by = scan_file.method()
        known, _ = scan_file._load(path, by)
        assert not known or [*known] == [*kept.known]  # type: ignore[union-attr]
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(content)
    with kept_scans(path) as kept:
        assert kept is not None
        assert not kept.known  # a link is not followed
        assert found(histories, kept) == expected


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        ("place", -1),
        ("place", 10**6),
        ("splits", 10**6),
        ("p_values", np.nan),
        ("energy_p_values", 2.0),
    ],
)
def test_rows_that_cannot_be_are_thrown_away(tmp_path: Path, column: str, wrong: float) -> None:
    path = tmp_path / "scans"
    with kept_scans(path) as kept:
        found(made(6, 30), kept)
        assert kept is not None
        known = next(own for own in kept.known.values() if len(own.rows))
        known.rows[column][0] = wrong
    with kept_scans(path) as kept:
        assert kept is not None
        assert not kept.known


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    histories = made(6, 5)
    with kept_scans(tmp_path / "missing" / "scans") as kept:
        found(histories, kept)
    with kept_scans(tmp_path / "missing" / "scans") as kept:
        assert kept is not None
        assert not kept.known


def test_a_series_that_nobody_searches_is_forgotten_after_a_month(tmp_path: Path) -> None:
    path, by = tmp_path / "scans", scan_file.method()
    both = [
        History(values=[1.0] * count, nights=range(count), direction="lower", name=str(count))
        for count in (20, 30)
    ]
    with kept_scans(path) as kept:
        found(both, kept)
    known, days = scan_file._load(path, by)
    assert len(known) == 2
    older = {key: day - 31 for key, day in days.items()}
    scan_file._save(path, by, KeptScans(known), older, max(days.values()))
    assert scan_file._load(path, by) == ({}, {})


def test_the_end_of_a_series_is_judged_as_the_whole_of_it() -> None:
    draw = np.random.default_rng(7)
    for number in range(60):
        logs = draw.normal(0, 0.02, 160)
        logs[130:] += 0.03
        levels, start = np.zeros(160), number if number % 2 else 0
        repeats = draw.random(160) < 0.5 if number % 3 else None
        for since in (start, 100, 134, 141, 146, 159):
            one = SeriesToScan(logs, levels, start, start, repeats)
            whole, kept = scan_series([one]), KeptScans()
            if since > start:
                first = None if repeats is None else repeats[:since]
                known = SeriesToScan(logs[:since], levels[:since], start, start, first)
                kept.scan([known], ["series"])
            found = kept.scan([one], ["series"])
            noted = (whole.score_p_values <= NOTED) | whole.separation
            assert np.array_equal(noted, (found.score_p_values <= NOTED) | found.separation)
            for said_now, said_of_whole in zip(found, whole, strict=True):
                assert np.array_equal(said_now[noted], said_of_whole[noted])
            assert kept.judged == 160 - start
