"""The served page and `perfrun report` say the same of the same results."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from perfrun.options.store_address import parse_address
from perfrun.page.command import report_command
from perfrun.serve import questions
from perfrun.serve.questions import Index
from perfrun.serve.results import Results
from perfrun.store.index import open_store
from perfrun.store.reading import read_trials
from tests.forty_nights import BEGIN_S, DAY_S, METHODS, SLOW, results_of
from tests.pages import read_page, unpack
from tests.summaries import summary, write


def reported(workspace: Path, *words: str) -> dict[str, Any]:
    page = workspace / "page.html"
    assert report_command([*words, f"--workspace={workspace}", f"--output={page}"]) == 0
    return read_page(page.read_text(encoding="utf-8")).data


def served(workspace: Path) -> Results:
    address = parse_address(None, workspace)
    with open_store(address) as store:
        store.refresh()
    index = Index(address=address, root=workspace.resolve())
    return Results(index, workspace, f"Benchmarks of {workspace.name}")


def plain(data: dict[str, Any], series: int) -> dict[str, Any]:
    """A series with its numbers, and without places that differ from page to page."""
    one = dict(data["series"][series])
    for name in ("time", "value", "low", "high"):
        one[name] = None if one[name] is None else unpack(data, one[name])
    commits = [] if one["commit"] is None else unpack(data, one["commit"])
    one["commit"] = [None if at is None else data["commits"][int(at)]["id"] for at in commits]
    return {name: value for name, value in one.items() if name != "method"}


def told(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The changes, with the series instead of its place."""
    return [
        {
            **one,
            "method": data["methods"][one["method"]]["name"],
            "series": plain(data, one["series"]),
        }
        for one in data["changes"]
    ]


def test_report_and_served_page_say_the_same_of_one_store(tmp_path: Path) -> None:
    results_of(tmp_path)
    report = reported(tmp_path)
    results = served(tmp_path)
    page = json.loads(results.page().answer.data)
    for name in ("newest", "machines", "outcomes", "warnings", "versus", "selection", "title"):
        assert page[name] == report[name], name
    assert told(page) == told(report)
    assert (page["details"], page["pairs"]) == ([], [])  # they come with their method
    assert {one["metric"] for one in told(page)} == {"wall_time", "loss_s", "rate_per_s"}
    assert report["changes"][0]["environment"] is not None
    assert [one["name"] for one in page["methods"]] == sorted(METHODS)
    for ours, theirs in zip(page["methods"], report["methods"], strict=True):
        places = ("main", "series", "detail")
        own = {n: v for n, v in ours.items() if n not in (*places, "href")}
        assert own == {n: v for n, v in theirs.items() if n not in places}
        assert plain(page, ours["main"]) == plain(report, theirs["main"])

        part = json.loads(results.method(ours["href"].removeprefix("/api/page/")).data)
        (opened,) = part["methods"]
        assert {n: v for n, v in opened.items() if n not in places} == own
        shown = [plain(part, at) for at in opened["series"]]
        assert shown == [plain(report, at) for at in theirs["series"]]
        assert {one["direction"] for one in shown} == {"lower", "higher"}
        (detail,) = part["details"]
        expected = {**report["details"][theirs["detail"]], "method": 0}
        assert {**detail, "timeline": len(detail["timeline"])} == {
            **expected,
            "timeline": len(expected["timeline"]),
        }
        of_method = [one for one in told(report) if one["method"] == ours["name"]]
        assert told(part) == of_method
        mine = [one for one in report["pairs"] if one["method"] == ours["name"]]
        assert [{**one, "series": 0} for one in part["pairs"]] == [{**o, "series": 0} for o in mine]
    (failing,) = (one for one in page["methods"] if one["name"] == METHODS[2])
    assert (failing["state"], failing["failed"]) == ("crashed", 2)


def test_a_step_is_put_on_the_same_night_however_the_results_are_read(tmp_path: Path) -> None:
    # Of noise alone the step would seem to begin a night early, which ran what the one before ran.
    noise = np.exp(0.005 * np.random.default_rng(8).standard_normal(45))
    nights = (
        summary(
            wall_time=float(noise[night] * (1.015 if night >= 30 else 1)),
            name=f"night-{night:03}",
            timestamp=BEGIN_S + night * DAY_S,
            run_id=f"run-{night}",
            commits={"bench": f"{(night + 5) // 7:040x}"},
        )
        for night in range(45)
    )
    write(tmp_path / "output", *nights)
    of_index, of_files = reported(tmp_path), reported(tmp_path, str(tmp_path / "output"))
    page = json.loads(served(tmp_path).page().answer.data)
    opened = json.loads(served(tmp_path).method(page["methods"][0]["href"][-16:]).data)
    begun = date.fromtimestamp(BEGIN_S + 30 * DAY_S).isoformat()
    for data in (of_index, of_files, page, opened):
        assert [one["night"] for one in data["changes"]] == [begun]


def of_settings(batch: int, *, level: float, night: int) -> dict[str, Any]:
    noise = 1 + 0.004 * (night * 7 % 5 - 2)
    return summary(
        wall_time=(level if night >= 25 else 1.0) * noise,
        name=f"night-{night:03}-{batch}",
        timestamp=BEGIN_S + night * DAY_S,
        run_id=f"run-{night}",
        benchmark_flags=[f"--batch={batch}"],
    )


def test_a_method_that_is_opened_has_its_own_changes_and_not_those_of_other_settings(
    tmp_path: Path,
) -> None:
    levels = {1: 1.2, 2: 1.3}
    both = [
        of_settings(batch, level=level, night=night)
        for night in range(40)
        for batch, level in levels.items()
    ]
    write(tmp_path / "output", *both)
    results = served(tmp_path)
    page = json.loads(results.page().answer.data)
    assert len({(one["night"], one["direction"]) for one in page["changes"]}) == 1
    assert {one["method"] for one in page["changes"]} == {0, 1}
    for at, method in enumerate(page["methods"]):
        part = json.loads(results.method(method["href"][-16:]).data)
        (change,) = part["changes"]
        (own,) = (one for one in page["changes"] if one["method"] == at)
        assert isinstance(change["series"], int)
        assert change["ratio"] == own["ratio"]


def test_a_method_that_is_opened_reads_no_more_than_its_newest_trials(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(questions, "_MOST_TRIALS", 10)
    named = "pkg.cases.Cases.of_*"
    old = summary(method=named, name="old", timestamp=BEGIN_S, module_sha256="b" * 64)
    new = [
        summary(method=method, name=f"new-{n}", timestamp=BEGIN_S + n * DAY_S, module_sha256=source)
        for n in range(1, 21)
        for method, source in ((named, "c" * 64), (named.replace("*", "more"), "d" * 64))
    ]
    write(tmp_path / "output", old, *new)
    results = served(tmp_path)
    with results._index.asked() as connection:
        (key,) = (one for one in results.page().overview.keys.values() if one.method == named)
        selector = questions.newest_trials(connection, key)
        found = list(read_trials(connection, None, selector))
    assert {one.method for one in found} == {named}
    assert [one.timestamp for one in found] == [BEGIN_S + n * DAY_S for n in range(11, 21)]


def test_a_large_store_shows_the_newest_and_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: Any
) -> None:
    results_of(tmp_path)
    monkeypatch.setattr(questions, "_MOST_OF_ALL", 60)  # 10 trials a subject, one metric
    monkeypatch.setattr(questions, "_FEWEST_TRIALS", 10)
    results = served(tmp_path)
    page = json.loads(results.page().answer.data)
    assert page["outcomes"] == reported(tmp_path)["outcomes"]  # all are counted
    assert {one["metric"] for one in page["series"]} == {"wall_time"}
    assert any("10 trials of each method" in text for text in page["left_out"])
    slow = next(one for one in page["methods"] if one["name"] == SLOW)
    part = json.loads(results.method(slow["href"][-16:]).data)
    # The metrics that the page has no room for are searched where their method is opened.
    assert {one["metric"] for one in part["changes"]} == {"loss_s", "rate_per_s"}
    assert part["methods"][0]["trials"] == slow["trials"]


def test_logs_beside_a_file_that_is_not_the_summary_of_the_trial_are_not_shown(
    tmp_path: Path,
) -> None:
    output = write(tmp_path / "output", summary(status="crashed"))
    store = parse_address(str(tmp_path / "team.sqlite"), tmp_path)
    with open_store(store) as opened:
        opened.refresh([output])
    (folder,) = output.iterdir()
    (folder / "stderr.log").write_text("the end of it\n")
    results = Results(Index(address=store, root=None), tmp_path, "title")
    (method,) = json.loads(results.page().answer.data)["methods"]
    assert b"the end of it" in results.method(method["href"][-16:]).data
    # A store may come from a stranger, and name any file of this machine.
    (folder / "perfzero_summary.json").write_text(json.dumps(summary(name="other")))
    results = Results(Index(address=store, root=None), tmp_path, "title")
    assert b"the end of it" not in results.method(method["href"][-16:]).data
