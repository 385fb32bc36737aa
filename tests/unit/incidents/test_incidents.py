"""Incidents of a history, through the command: found, grouped, accepted, reopened, closed."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import schemas

from perfrun.benchmark import main
from perfrun.errors import WorkspaceError
from perfrun.incidents import ledger
from perfrun.incidents.incident import Culprit, Incident, Ledger, Returned
from perfrun.locks import FileLock
from tests.summaries import summary, write
from tests.unit.incidents.test_grouping import worse

NIGHT = "2026-07-01"
BEGIN = datetime(2026, 6, 1, 23, 0).timestamp()
MANY = [f"bench.many.Many.m{number}" for number in range(5)]
ENV = [f"bench.env.Env.e{number}" for number in range(2)]
BACK, ALONE = "bench.back.Back.one", "bench.alone.Alone.one"
STILL = [f"bench.still.Still.s{number}" for number in range(4)]
COMMITS = {0: "a", 25: "b", 30: "c", 45: "d", 50: "e"}  # from that night on


def factor(method: str, night: int) -> float:
    """Three slowdowns that stay, of 10 % by a commit, 15 % by numpy, 20 %; one that returns."""
    if method in MANY and night >= 30:
        return 1.1
    if method in ENV and night >= 40:
        return 1.15
    if method == ALONE and night >= 50:
        return 1.2
    return 1.12 if method == BACK and 25 <= night < 45 else 1.0


def nights(workspace: Path, first: int, end: int) -> None:
    documents = []
    for method in (*MANY, *ENV, BACK, ALONE, *STILL):
        noise = np.random.default_rng(sum(map(ord, method))).standard_normal(100)
        for night in range(first, end):
            commit = next(c for since, c in reversed(COMMITS.items()) if night >= since)
            documents.append(
                summary(
                    method=method,
                    wall_time=factor(method, night) * float(np.exp(0.01 * noise[night])),
                    name=f"{method}-{night:03}",
                    run_id=f"run-{night:03}",
                    timestamp=BEGIN + night * 86400,
                    commits={"models": commit * 40},
                    distributions={"numpy": "2.2" if night < 40 else "2.3"},
                )
            )
    write(workspace / "output", *documents)


class Told:
    """`perfrun incidents` in a workspace."""

    def __init__(self, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.workspace, self._capsys = workspace, capsys

    def text(self, *words: str) -> tuple[int, str]:
        status = main(["incidents", *words, f"--workspace={self.workspace}"])
        said = self._capsys.readouterr()
        return status, said.out or said.err

    def __call__(self, *words: str) -> list[Any]:
        status, said = self.text(*words, "--format=json")
        document = json.loads(said)
        schemas.check("incidents", document)
        found: list[Any] = document["incidents"]
        if not words or words[0].startswith("-"):
            assert status == any(one["is_open"] for one in found)
        return found


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(tmp_path, capsys)


def facts(found: list[Any]) -> list[tuple[Any, ...]]:
    return [(one["id"], one["status"], one["night"], one["methods"]) for one in found]


def test_a_history_has_the_incidents_that_were_planted_and_no_other(told: Told) -> None:
    nights(told.workspace, 0, 28)
    assert told() == []
    assert not (told.workspace / "incidents.json").exists()

    nights(told.workspace, 28, 38)
    back, many = (1, "suspect", "2026-06-26", [BACK]), (2, "suspect", "2026-07-01", MANY)
    assert facts(told()) == [back, many]
    nights(told.workspace, 38, 48)
    *known, env = told()
    assert facts(known) == [back, many]
    assert facts([env]) == [(3, "suspect", "2026-07-11", ENV)]
    causes = [one["cause"]["kind"] for one in (*known, env)]
    assert causes == ["commits", "commits", "environment"]
    assert env["cause"]["differences"] == ["numpy 2.2 -> 2.3"]
    assert told.text("accept", "3", "--reason=new numerics") == (0, "incident 3: accepted\n")

    nights(told.workspace, 48, 65)
    assert facts(told()) == [many, (4, "suspect", "2026-07-21", [ALONE])]
    fixed, _, accepted, _ = told("--all")
    assert (fixed["status"], fixed["fixed"]["night"]) == ("fixed", "2026-07-16")
    assert fixed["fixed"]["commits"] == {"models": ["c" * 40, "d" * 40]}
    assert (accepted["status"], accepted["decision"]["reason"]) == ("accepted", "new numerics")
    status, text = told.text()
    assert (status, text.count("\n\n")) == (1, 2)
    assert "2  suspect, began 2026-07-01, seen 2026-07-03: 5 methods, wall_time +10 %" in text
    assert "   cause: models bbbbbbbbbbbb..cccccccccccc\n" in text
    assert text.endswith("2 closed incidents: perfrun incidents --all\n")
    status, text = told.text("list", "--format=markdown")
    assert text.startswith("- incident 2: 5 methods worse since the night of 2026-07-01, most ")
    schemas.check(
        "incidents-file", json.loads((told.workspace / "incidents.json").read_text("utf-8"))
    )

    # What was closed opens by a word, and what returned before that word does not close it again.
    assert told.text("reopen", "1", "3") == (0, "incident 1: open again\nincident 3: open again\n")
    assert [one["id"] for one in told()] == [1, 2, 3, 4]
    assert told.text("reopen", "2") == (
        2,
        "perfrun: incident 2 is open: there is nothing to reopen\n",
    )
    status, text = told.text("show", "3")
    first, *_ = text.splitlines()
    assert first.startswith("incident 3: suspect, began 2026-07-11, seen ")
    assert all(f"\n{method}  wall_time " in text for method in ENV)


def test_what_was_fast_because_it_was_wrong_is_no_baseline(told: Told) -> None:
    documents = []
    noise = np.random.default_rng(7).standard_normal(60)
    for method, is_bounded in ((ALONE, True), (BACK, False)):
        for night in range(60):
            is_wrong = 25 <= night < 40
            documents.append(
                summary(
                    method=method,
                    wall_time=(0.8 if is_wrong else 1.0) * float(np.exp(0.01 * noise[night])),
                    name=f"{method}-{night:03}",
                    run_id=f"run-{night:03}",
                    timestamp=BEGIN + night * 86400,
                    status="out_of_bounds" if is_wrong and is_bounded else "passed",
                )
            )
    write(told.workspace / "output", *documents)
    assert [one["methods"] for one in told()] == [[BACK]]


def test_a_bisection_names_culprit_and_owner(told: Told) -> None:
    nights(told.workspace, 0, 38)
    folder = told.workspace / "bisect" / "20260705-100000-abcdef"
    folder.mkdir(parents=True)
    revisions = ["b" * 40, "9" * 40, "c" * 40]
    (folder / "search.jsonl").write_text(json.dumps({"revisions": revisions}) + "\n")
    with FileLock(folder / "lock") as lock:
        lock.own()
        assert [one["status"] for one in told()] == ["suspect", "bisecting"]
    author = "A\x1b[2J <a@example.com>"
    culprit = {"name": "9" * 40, "author": author, "repository": "models", "subject": "slow"}
    answer = {"status": "found", "method": MANY[0], "metric": "wall_time", "direction": "worse"}
    (folder / "answer.json").write_text(json.dumps({**answer, "culprit": culprit}))
    other, found = told()
    assert other["owner"] is None
    assert (found["status"], found["owner"]) == ("culprit_found", author)
    named = {"name": "9" * 40, "author": author, "subject": "slow", "repository": "models"}
    assert found["culprit"] == named
    text = told.text()[1]
    assert "cause: 999999999999 of A\\x1b[2J <a@example.com>: slow" in text
    assert "\x1b" not in text


def test_a_step_whose_commit_was_found_is_no_part_of_a_drift(told: Told) -> None:
    noise = np.random.default_rng(1).standard_normal(60)
    documents = [
        summary(
            method=ALONE,
            wall_time=1.002 ** min(max(night - 15, 0), 30)
            * (1.03 if night >= 30 else 1.0)
            * math.exp(0.003 * noise[night]),
            name=f"t-{night:03}",
            run_id=f"run-{night:03}",
            timestamp=BEGIN + night * 86400,
            commits={"models": ("b" if night < 30 else "c") * 40},
        )
        for night in range(60)
    ]
    write(told.workspace / "output", *documents)
    (one,) = told()
    assert (one["cause"]["kind"], len(one["changes"])) == ("drift", 2)
    (told.workspace / "incidents.json").unlink()
    folder = told.workspace / "bisect" / "20260705-100000-abcdef"
    folder.mkdir(parents=True)
    revisions = ["b" * 40, "c" * 40]
    (folder / "search.jsonl").write_text(json.dumps({"revisions": revisions}) + "\n")
    culprit = {"name": "c" * 40, "author": "A", "repository": "models", "subject": "slow"}
    answer = {"status": "found", "method": ALONE, "metric": "wall_time", "direction": "worse"}
    (folder / "answer.json").write_text(json.dumps({**answer, "culprit": culprit}))
    kinds = [(own["cause"]["kind"], own["status"]) for own in told()]
    assert kinds == [("drift", "suspect"), ("commits", "culprit_found")]


def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(told: Told, tmp_path: Path) -> None:
    nights(told.workspace, 0, 38)
    told()
    path = told.workspace / "incidents.json"
    good = json.loads(path.read_text(encoding="utf-8"))
    own, _ = good["incidents"]
    hostile: list[Any] = [
        "[" * 100_000,
        "{}",
        {**good, "version": 2},
        {**good, "next": 1},
        {**good, "further": 1},
        {**good, "incidents": [own, own]},
        {**good, "incidents": [{**own, "changes": []}]},
        *(
            {**good, "incidents": [{**own, "changes": [{**own["changes"][0], name: value}]}]}
            for name, value in (
                ("ratio", float("nan")),
                ("ratio", 0.0),
                ("night", "2026-13-99"),
                ("night", "\x1b[2J"),
                ("commits", {"models": ["a"]}),
                ("method", 1e999),
            )
        ),
    ]
    for document in hostile:
        text = document if isinstance(document, str) else json.dumps(document)
        path.write_text(text, encoding="utf-8")
        for words in ((), ("accept", "1"), ("show", "1")):
            status, said = told.text(*words)
            assert (status, said.count("\n"), "\x1b" in said) == (2, 1, False), said
            assert "incidents.json" in said
        assert path.read_text(encoding="utf-8") == text
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert told.text()[0] == 2


def test_runs_of_one_day_have_a_level_before_and_a_return(told: Told) -> None:
    def runs(first: int, *factors: float) -> None:
        noise = np.random.default_rng(3).standard_normal(100)
        documents = (
            summary(
                method=ALONE,
                wall_time=own * float(np.exp(0.01 * noise[number])),
                name=f"run-{number:03}",
                run_id=f"run-{number:03}",
                timestamp=BEGIN + number * 300,
                commits={"models": ("a" if number < 30 else "b") * 150},
            )
            for number, own in enumerate(factors, start=first)
        )
        write(told.workspace / "output", *documents)

    runs(0, *[1.0] * 30, *[1.2] * 15)
    (found,) = told()
    (change,) = ledger.read(told.workspace).incidents[0].changes
    assert change.level == pytest.approx(1.0, rel=0.01)
    assert told() == [found]  # the file is one that the next command can read
    assert told.text("accept", "1")[0] == 0


def test_only_what_can_be_read_again_is_written(tmp_path: Path) -> None:
    outside = "x" * 20_000
    change = replace(
        worse(outside, commits={outside: (outside, outside)}, differences=(outside,)),
        before_execution_id=outside,
        after_execution_id=outside,
        low=0.0,
        high=math.inf,
        returned=Returned(night=NIGHT, alarm_night=NIGHT, commits={outside: ("", outside)}),
    )
    culprit = Culprit(name=outside, author=outside, subject=outside, repository=outside)
    one = Incident(id=1, changes=(change,), owner=outside, culprit=culprit)
    known = Ledger(incidents=(one,), next=2, canaries=(outside,), owners={outside: outside})
    written = ledger.change(tmp_path, lambda _: known)
    assert ledger.read(tmp_path) == written
    assert written.incidents[0].methods == ["x" * 10_000]

    before = (tmp_path / "incidents.json").read_bytes()
    for unfit in (
        replace(one, changes=(replace(change, level=math.nan),)),
        replace(one, changes=(replace(change, night="tonight"),)),
        replace(one, changes=()),
        replace(one, id=2),
    ):
        bad = replace(known, incidents=(unfit,))
        with pytest.raises(WorkspaceError, match="left as it was: it would not be read again"):
            ledger.change(tmp_path, lambda _, bad=bad: bad)
        assert (tmp_path / "incidents.json").read_bytes() == before


def test_commands_at_once_do_not_lose_one_anothers_words(tmp_path: Path) -> None:
    def add(name: str) -> Callable[[Ledger], Ledger]:
        return lambda now: Ledger(owners={**now.owners, name: name})

    def many(first: int) -> None:
        for number in range(first, first + 10):
            ledger.change(tmp_path, add(str(number)))

    writers = [threading.Thread(target=many, args=(first,)) for first in range(0, 50, 10)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert set(ledger.read(tmp_path).owners) == {str(number) for number in range(50)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["accpt", "1"], "'accpt' is no action; say one of list, show, accept, reopen"),
        (["accept"], "accept: name an incident by its number"),
        (["show", "x1"], "show: 'x1' is no number of an incident"),
        (["list", "3"], "list: takes no number"),
        (["--reason=x"], "list: --reason goes with accept and reopen"),
        (["accept", "7"], "there is no incident 7 in "),
        ([], "holds no results of that kind"),
    ],
)
def test_wrong_words_get_one_line(words: list[str], said: str, told: Told) -> None:
    status, text = told.text(*words)
    assert (status, text.count("\n")) == (2, 1)
    assert said in text
