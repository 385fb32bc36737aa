"""The run's diary, as `--resume` reads it: also one that was cut off."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from perfrun.options.containment import Containment
from perfrun.options.parsers import ProfilerWindow, Repetition
from perfrun.options.plan import DataSpec, RepoSpec, RunPlan, parse_selectors
from perfrun.run import journal
from perfrun.run.journal import (
    Journal,
    complete,
    fingerprint,
    going_on,
    unfinished,
    used_by_runs,
)
from perfrun.run.schedule import Step

PLAN = RunPlan(
    selectors=parse_selectors(["m.C.a", "m.C.b"]), num_trials=2, python="/usr/bin/python3"
)

# A value other than PLAN's for every field of a plan. What is in CHANGES makes it another run,
# whose results may not be mixed with this one's; SAME only changes how the run is carried out.
CHANGES: dict[str, Any] = {
    "selectors": parse_selectors(["m.C.b", "m.C.a"]),  # the order counts: it is the run's order
    "num_trials": 3,
    "repetition": Repetition(precision=0.01),
    "repos": (RepoSpec(url="https://h/r.git", directory="r", git_hash="abcd"),),
    "python_path": ("r",),
    "root_data_dir": "/other",
    "data": (DataSpec(url="https://h/d", relative_path="d", sha256="0" * 64),),
    "execution_label": "night",
    "ml_framework_build_label": "b",
    "platform_name": "p",
    "system_name": "s",
    "constructor_args": {"batch": 8},
    "env": (("OMP_NUM_THREADS", "1"),),
    "allocator": "retain",
    "class_type": "tf_benchmark",
    "profiler_windows": (ProfilerWindow(begin_s=1, end_s=2),),
    "profiles": ("cprofile",),
    "profile_scope": "method",
    "python": "/usr/bin/python3.12",
    "container": Containment(image="perfrun/torch"),
    "benchmark_flags": ("--batch=8",),
}
SAME: dict[str, Any] = {
    "use_cached_site_packages": True,
    "workspace": Path("elsewhere"),  # the journal itself is there
    "execution_id": "id",
    "upload_methods": ("m.f",),
    "debug": True,
    "timeout_s": 5.0,
    "output_format": "json",
    "quiet": True,
    "verbose": True,
    "with_cost": True,
    "metrics": re.compile("x"),
    "print_perfzero_summary": True,
    "fail_on_bounds": True,
    "allow_empty": True,
    "resume": True,
    "baseline": "v1.0",
    "store": "other.db",
    "names": ("m",),
    "flags": {"x": 1},
    "argv": ("--resume",),
}


def begun(runs: Path, name: str, plan: RunPlan = PLAN, **pinned: str) -> Journal:
    journal = Journal(runs / f"{name}.jsonl")
    journal.begin(plan, pinned, seed=7)
    return journal


def test_every_field_of_a_plan_is_known_to_change_the_run_or_not() -> None:
    assert {field.name for field in fields(RunPlan)} == set(CHANGES) | set(SAME)


@pytest.mark.parametrize("name", CHANGES)
def test_asking_for_something_else_is_another_run(name: str) -> None:
    assert fingerprint(replace(PLAN, **{name: CHANGES[name]})) != fingerprint(PLAN)


@pytest.mark.parametrize(
    "rules",
    [
        Repetition(precision=0.02),
        Repetition(precision=0.01, max_trials=7),
        Repetition(precision=0.01, max_reruns=1),
        Repetition(precision=0.01, seed=1),
    ],
)
def test_other_rules_for_trials_are_another_run(rules: Repetition) -> None:
    plan = replace(PLAN, repetition=Repetition(precision=0.01))
    assert fingerprint(replace(plan, repetition=rules)) != fingerprint(plan)


def test_a_run_may_go_on_with_more_time() -> None:
    plans = [
        replace(PLAN, repetition=Repetition(precision=0.01, time_budget_s=budget_s))
        for budget_s in (None, 60.0, 3600.0)
    ]
    assert len({fingerprint(plan) for plan in plans}) == 1


def test_a_resumed_run_has_its_seed_and_its_planned_rounds(tmp_path: Path) -> None:
    journal = begun(tmp_path, "1")
    first = (Step(method="m.C.b", trial_id=1, round=1), Step(method="m.C.a", trial_id=1, round=1))
    second = (Step(method="m.C.b", trial_id=2, round=2, rerun_of=1),)
    journal.planned(first)
    journal.started(("m.C.b", 1), tmp_path)
    journal.planned(second)
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert resumed.seed == 7
    assert resumed.rounds == (first, second)


@pytest.mark.parametrize("name", SAME)
def test_how_the_run_is_carried_out_does_not_make_it_another(name: str) -> None:
    assert fingerprint(replace(PLAN, **{name: SAME[name]})) == fingerprint(PLAN)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (RepoSpec(url="u", directory="d"), RepoSpec(url="v", directory="d")),
        (RepoSpec(url="u", directory="d"), RepoSpec(url="u", directory="d", branch="b")),
        (
            RepoSpec(url="u", directory="d", git_hash="abcd"),
            RepoSpec(url="u", directory="d", git_hash="abce"),
        ),
    ],
)
def test_each_part_of_a_repository_counts(one: RepoSpec, other: RepoSpec) -> None:
    assert fingerprint(replace(PLAN, repos=(one,))) != fingerprint(replace(PLAN, repos=(other,)))


def test_a_run_is_resumed_with_what_it_pinned_started_and_finished(tmp_path: Path) -> None:
    journal = begun(tmp_path, "20260101", models="abc")
    journal.started(("m.C.a", 1), tmp_path / "o" / "id-1")
    journal.finished(("m.C.a", 1), tmp_path / "o" / "id-1" / "s.json")
    journal.started(("m.C.b", 1), tmp_path / "o" / "id-2")
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert resumed.run_id == "20260101"
    assert resumed.path == journal.path
    assert resumed.pinned == {"models": "abc"}
    assert set(resumed.started) == {("m.C.a", 1), ("m.C.b", 1)}
    assert resumed.started["m.C.b", 1].name == "id-2"
    assert resumed.started["m.C.b", 1] == tmp_path / "o" / "id-2"
    assert resumed.finished == {("m.C.a", 1): tmp_path / "o" / "id-1" / "s.json"}
    assert journal.broken is None


def test_the_last_start_of_a_trial_is_the_one_that_counts(tmp_path: Path) -> None:
    journal = begun(tmp_path, "1")
    journal.started(("m.C.a", 1), tmp_path / "old")
    journal.started(("m.C.a", 1), tmp_path / "new")
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert resumed.started["m.C.a", 1].name == "new"


def test_a_run_that_ended_is_not_resumed_nor_one_before_it(tmp_path: Path) -> None:
    begun(tmp_path, "1")
    begun(tmp_path, "2").end()
    assert unfinished(tmp_path, PLAN) is None


def test_the_newest_unfinished_run_of_the_same_flags_is_taken(tmp_path: Path) -> None:
    begun(tmp_path, "1").end()
    begun(tmp_path, "2")
    begun(tmp_path, "3")
    begun(tmp_path, "4", replace(PLAN, num_trials=9))
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert resumed.run_id == "3"


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time goes from 3:00 back to 2:00 on 2026-10-25, at 1:00 UTC."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(hour: int, minute: int) -> float:
    return datetime(2026, 10, 25, hour, minute, tzinfo=timezone.utc).timestamp()


def test_the_newest_run_is_the_one_that_began_last_whatever_the_clock_on_the_wall_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, time_s in (("20261025-025000", utc(0, 50)), ("20261025-021000", utc(1, 10))):
        monkeypatch.setattr(journal.time, "time", lambda now=time_s: now)
        begun(tmp_path, name)
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert resumed.run_id == "20261025-021000"
    Journal(resumed.path).end()
    assert unfinished(tmp_path, PLAN) is None
    assert complete(tmp_path, PLAN) == tmp_path / "20261025-021000.report.json"


@pytest.mark.usefixtures("central_europe")
@pytest.mark.parametrize("first_trial", ["early", "none"])
def test_of_runs_without_a_time_the_newest_is_told_across_the_end_of_summer_time(
    tmp_path: Path, first_trial: str
) -> None:
    def old(name: str, touched: float) -> Journal:
        made = begun(tmp_path, name)
        event = json.loads(made.path.read_text())
        made.path.write_text(json.dumps({k: v for k, v in event.items() if k != "begun"}) + "\n")
        os.utime(made.path, (touched, touched))
        return made

    # Summer time; with a first trial it may have gone on for hours, without it did not.
    first = old("20261025-025000-000000-aaaaaa", utc(1, 5))
    if first_trial == "early":
        (tmp_path / "o" / "perfrun").mkdir(parents=True)
        order = tmp_path / "o" / "perfrun" / "order.json"
        order.touch()
        os.utime(order, (utc(0, 51), utc(0, 51)))
        first.started(("m.C.a", 1), tmp_path / "o")
        os.utime(first.path, (utc(5, 0), utc(5, 0)))
    second = old("20261025-021000-000000-bbbbbb", utc(1, 20))  # winter time: twenty minutes later
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert resumed.path == second.path
    old("20261025-031500-000000-cccccc", utc(2, 15))
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert resumed.run_id == "20261025-031500-000000-cccccc"


def test_a_run_that_is_still_going_on_is_left_alone(tmp_path: Path) -> None:
    begun(tmp_path, "1")
    journal = begun(tmp_path, "2")
    with journal.held() as free:
        assert free
        with Journal(journal.path).held() as free_again:
            assert not free_again
        resumed = unfinished(tmp_path, PLAN)
        assert resumed is not None
        assert resumed.run_id == "1"
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert resumed.run_id == "2"


def test_without_any_runs_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert unfinished(tmp_path / "missing", PLAN) is None
    (tmp_path / "empty.jsonl").touch()
    assert unfinished(tmp_path, PLAN) is None


def test_a_line_cut_off_anywhere_loses_that_line_only(tmp_path: Path) -> None:
    journal = begun(tmp_path, "1")
    journal.finished(("m.C.a", 1), tmp_path / "s1.json")
    whole = journal.path.read_bytes()
    journal.finished(("m.C.é", 1), tmp_path / "s2.json")
    last = journal.path.read_bytes()[len(whole) :]
    for length in range(len(last)):
        journal.path.write_bytes(whole + last[:length])
        resumed = unfinished(tmp_path, PLAN)
        assert resumed is not None
        complete = length == len(last) - 1  # all but the line's end
        assert len(resumed.finished) == 1 + complete


def test_what_is_written_after_a_cut_off_line_is_read(tmp_path: Path) -> None:
    journal = begun(tmp_path, "1")
    with journal.path.open("a") as file:
        file.write('{"event": "finished", "meth')
    # The resumed run goes on in the same file.
    Journal(journal.path).finished(("m.C.a", 1), tmp_path / "s.json")
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert resumed.finished == {("m.C.a", 1): tmp_path / "s.json"}


def test_a_run_whose_first_line_is_lost_is_passed_over(tmp_path: Path) -> None:
    journal = begun(tmp_path, "1")
    journal.started(("m.C.a", 1), tmp_path)
    lines = journal.path.read_text().splitlines(keepends=True)
    journal.path.write_text("".join(lines[1:]))
    assert unfinished(tmp_path, PLAN) is None


def test_noise_between_lines_is_passed_over(tmp_path: Path) -> None:
    journal = begun(tmp_path, "1")
    with journal.path.open("ab") as file:
        file.write(b"\0\0\0\xff\n\n[1]\nnull\n")
    journal.finished(("m.C.a", 1), tmp_path / "s.json")
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert len(resumed.finished) == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": ["end"]}',
        b'{"event": "round"}',
        b'{"event": "round", "steps": [{"method": "m.C.a"}]}',
        b'{"event": "round", "steps": [{"method": "m.C.a", "trial_id": true, "round": 1}]}',
        b'{"event": "started", "method": "m.C.a", "trial_id": 1}',
        b'{"event": "started", "method": ["m"], "trial_id": 1, "folder": "x"}',
        b'{"event": "started", "method": "m.C.a", "trial_id": 1, "folder": "a\\u0000b"}',
        b'{"event": "started", "method": "m.C.a", "trial_id": 1, "folder": "\\ud800"}',
        b'{"event": "started", "method": "m.C.a", "trial_id": 1, "folder": "%s"}' % (b"x" * 256),
        b'{"event": "written", "method": "m.C.a", "trial_id": 1, "sha256": [1]}',
        b'{"event": "finished", "method": "m.C.a", "trial_id": 1e400, "summary": "s"}',
    ],
)
def test_a_line_with_a_wrong_value_counts_as_one_that_was_cut_off(
    tmp_path: Path, line: bytes
) -> None:
    journal = begun(tmp_path, "1")
    journal.started(("m.C.b", 1), tmp_path / "folder")
    journal.path.write_bytes(journal.path.read_bytes() + line + b"\n")
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert (len(resumed.started), resumed.finished, resumed.rounds) == (1, {}, ())
    journal.remove_unfinished()
    assert going_on(tmp_path) == {"1"}


@pytest.mark.parametrize("values", ['"begun": 1e999', '"used": 5', '"pinned": [1]', '"seed": "x"'])
def test_a_first_line_with_a_wrong_value_counts_as_lost(tmp_path: Path, values: str) -> None:
    journal = begun(tmp_path, "1")
    first = journal.path.read_text()
    journal.path.write_text(first.replace("}\n", f", {values}}}\n"))
    assert unfinished(tmp_path, PLAN) is None
    assert used_by_runs(tmp_path) == frozenset()


def test_a_first_line_of_another_kind_counts_as_lost_whatever_it_says(tmp_path: Path) -> None:
    journal = begun(tmp_path, "1")
    first = journal.path.read_text().replace('"event": "begin"', '"event": "x"')
    journal.path.write_text(first.replace("}\n", ', "used": 5, "pinned": [1]}\n'))
    assert unfinished(tmp_path, PLAN) is None
    assert used_by_runs(tmp_path) == frozenset()


def test_names_with_line_ends_stay_on_one_line(tmp_path: Path) -> None:
    journal = begun(tmp_path, "1")
    folder = tmp_path / "a\nb\u2028'\""
    journal.started(("m.C:a\nb", 1), folder)
    assert len(journal.path.read_text().splitlines()) == 2
    resumed = unfinished(tmp_path, PLAN)
    assert resumed is not None
    assert resumed.started["m.C:a\nb", 1] == folder


def test_a_journal_that_cannot_be_written_says_so_and_stops_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    journal = Journal(begun(tmp_path, "1").path, said.append)
    journal.path.unlink()
    journal.path.mkdir()
    journal.finished(("m.C.a", 1), tmp_path / "s.json")
    journal.finished(("m.C.b", 1), tmp_path / "t.json")
    assert journal.broken
    (note,) = said
    assert note.startswith("--resume will not know all of this run: ")
    assert str(journal.path) in note
    assert unfinished(tmp_path, PLAN) is None


def test_each_event_is_one_json_object_a_line(tmp_path: Path) -> None:
    journal = begun(tmp_path, "1")
    journal.started(("m.C.a", 2), tmp_path)
    journal.finished(("m.C.a", 2), tmp_path / "s")
    journal.end()
    events = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert [event["event"] for event in events] == ["begin", "started", "finished", "end"]


def test_a_run_that_came_to_its_end_has_a_report(tmp_path: Path) -> None:
    plan = RunPlan(selectors=())
    assert complete(tmp_path, plan) is None
    journal = Journal(tmp_path / "20261121-1.jsonl")
    journal.begin(plan, {}, 1)
    assert complete(tmp_path, plan) is None
    journal.end()
    assert complete(tmp_path, plan) == tmp_path / "20261121-1.report.json"
    assert complete(tmp_path, RunPlan(selectors=(), execution_label="other")) is None
    Journal(tmp_path / "20261121-2.jsonl").begin(plan, {}, 1)
    assert complete(tmp_path, plan) is None  # the newest one counts


def test_what_a_killed_run_had_begun_to_write_is_removed_and_nothing_of_another(
    tmp_path: Path,
) -> None:
    journal = begun(tmp_path, "1")
    trial = tmp_path / "trial"
    trial.mkdir()
    journal.started(("m.C.a", 1), trial)
    journal.started(("m.C.b", 1), tmp_path / "gone")
    names = (f".{journal.report.name}.12ab.next", ".2.report.json.12ab.next")
    of_the_run, of_another = (tmp_path / name for name in names)
    cut_off = trial / ".perfzero_summary.json.12ab.next"
    for path in (of_the_run, of_another, cut_off):
        path.write_text("half")
    journal.remove_unfinished()
    assert not of_the_run.exists()
    assert not cut_off.exists()
    assert of_another.exists()
