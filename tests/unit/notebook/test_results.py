"""Results as Python values: choosing, data frames, comparing, and what a notebook shows of them."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest

import perfrun
from perfrun.benchmark import main
from perfrun.errors import UsageError
from perfrun.notebook.packages import MissingPackage
from perfrun.notebook.results import Results
from tests.summaries import summary, trials, write

HOSTILE = "pkg.mod.Case.<img src=x onerror=alert(1)>$x$\x1b[2J"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Four trials before and four after a change for the worse, and one that failed."""
    before = trials([1.00, 1.01, 1.02, 0.99], label="before", run_id="first")
    after = trials([1.20, 1.21, 1.22, 1.19], label="after", run_id="second")
    for number, document in enumerate([*before, *after]):
        document["execution_timestamp"] = 1.79e9 + 60 * number + 0.25
        document["execution_id"] = f"trial-{number}"
        document["benchmark_result"]["metrics"] = [
            {"name": "images_per_second", "value": 100.0 - number}
        ]
    failed = summary(name="failed", status="timed_out", timestamp=1.79e9 + 900, run_id="third")
    failed["perfrun"]["outcome"]["reason"] = "not finished after 2 s"
    write(tmp_path / "ws" / "output", *before, *after, failed)
    return tmp_path / "ws"


def test_trials_are_loaded_in_the_order_of_time_and_chosen(workspace: Path) -> None:
    found = perfrun.load(workspace)
    assert len(found) == 9
    assert [trial.time for trial in found] == sorted(trial.time for trial in found)
    assert found[0].time == datetime.fromtimestamp(1.79e9 + 0.25, timezone.utc)
    assert found.methods == ("pkg.cases.Cases.spin",)
    assert found.metrics == ("images_per_second", "peak_rss_bytes", "wall_time")
    assert len(found.filter(label="before")) == len(found.filter(run="second")) == 4
    assert len(found.filter(status="ran", method="pkg.*")) == 8
    assert [one.reason for one in found.filter(status="timed_out")] == ["not finished after 2 s"]
    assert found.filter(metric="images*").metrics == ("images_per_second",)
    assert len(found) == 9, "a choice changes nothing"
    assert found.filter(label="before") + found.filter(label="after") == found[:8]
    assert isinstance(found[:8], Results)
    assert found + found == found, "a trial counts once"
    assert len({*found, *found}) == 9
    assert "load" in dir(perfrun)
    with pytest.raises(UsageError, match=r"filter\(status='fail'\): must be one of ran, passed"):
        found.filter(status="fail")


def test_a_selection_means_what_it_means_to_compare(workspace: Path) -> None:
    assert perfrun.load(workspace, "before") == perfrun.load(workspace).filter(label="before")
    assert len(perfrun.load(workspace, ["label:before", "second"])) == 8
    folder = next((workspace / "output").iterdir())
    assert len(perfrun.load(folder)) == len(perfrun.load(folder / "perfzero_summary.json")) == 1
    with pytest.raises(UsageError, match="neither a folder nor a run"):
        perfrun.load(workspace, "never")
    with pytest.raises(UsageError, match="is not there"):
        perfrun.load(workspace / "no")


def test_an_index_is_loaded_by_its_file_or_address(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "team.sqlite"
    assert main(["index", f"--store={store}", str(workspace)]) == 0
    for name in (store, f"sqlite:///{store}"):
        assert [one.record.values for one in perfrun.load(name)] == [
            one.record.values for one in perfrun.load(workspace)
        ]
        assert len(perfrun.load(name, "before")) == 4
    with pytest.raises(UsageError, match="no such index"):
        perfrun.load(f"sqlite:///{tmp_path / 'none'}")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["team.sqlite", "ws"]


@pytest.mark.postgresql
def test_a_store_of_a_team_is_loaded_by_its_address(
    workspace: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgresql").new_database()
    with pytest.raises(UsageError, match="holds no results"):
        perfrun.load(url)
    assert main(["index", f"--store={url}", f"--workspace={workspace}"]) == 0
    assert perfrun.load(url) == perfrun.load(workspace)
    assert perfrun.load(url, "after").compare(perfrun.load(url, "before")).faster


def test_a_summary_that_cannot_be_read_is_a_warning(workspace: Path) -> None:
    bad = workspace / "output" / "bad" / "perfzero_summary.json"
    bad.parent.mkdir()
    bad.write_text("{")
    with pytest.warns(UserWarning, match=r"bad/perfzero_summary.json is left out") as caught:
        assert len(perfrun.load(workspace)) == 9
    assert [one.filename for one in caught] == [__file__]


def test_a_comparison_is_the_answer_of_the_command(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = perfrun.load(workspace)
    answer = found.filter(label="before").compare(found.filter(label="after"))
    words = ["compare", f"--workspace={workspace}", "before", "after"]
    assert main([*words, "--format=json"]) == 1
    assert answer.document == json.loads(capsys.readouterr().out)
    assert [one.metric for one in answer.slower] == ["wall_time", "images_per_second"]
    assert len(answer.to_pandas()) == len(answer) == 3
    assert main(words) == 1
    assert repr(answer).split() == capsys.readouterr().out.split()
    assert "slower" in answer._repr_html_()
    few = found.filter(label="before").compare(found.filter(label="after"), metrics="wall_.*")
    assert [one.metric for one in few] == ["wall_time"]
    with pytest.raises(UsageError, match="no method is in both sets"):
        found.compare(found.filter(method="none"))
    with pytest.raises(UsageError, match="must be some of hardware, driver"):
        found.compare(found, allow_different=["weather"])


def test_a_measurement_has_the_interval_of_its_trials_and_their_worst_grade(
    workspace: Path,
) -> None:
    found = perfrun.load(workspace, "before")
    first = found.measurements[0]
    assert (first.metric, first.value, first.unit, first.trials) == ("wall_time", 1.005, "s", 4)
    assert first.low is not None
    assert first.high is not None
    assert first.low < first.value < first.high
    assert re.fullmatch(
        r"<wall_time 1\.005 s \(0\.98\d*\.\.1\.02\d*\), 4 trials, grade A: pkg.cases.Cases.spin>",
        repr(first),
    )
    assert found.directions["images_per_second"] == "higher"
    assert repr(found[0]).startswith("<pkg.cases.Cases.spin: passed, grade A, wall_time 1 s")


@pytest.mark.parametrize("wide", [False, True])
def test_both_kinds_of_frame_have_the_rows_of_an_export(
    workspace: Path, tmp_path: Path, wide: bool
) -> None:
    found = perfrun.load(workspace)
    ours, theirs = found.to_pandas(wide=wide), found.to_polars(wide=wide)
    assert list(ours.columns) == theirs.columns
    assert str(ours["time"].dtype) == "datetime64[us, UTC]"
    assert theirs.schema["time"] == polars.Datetime("us", "UTC")
    assert ours["time"].iloc[0].timestamp() == theirs["time"][0].timestamp() == 1.79e9 + 0.25
    assert ours.attrs["units"]["wall_time"] == found.units["wall_time"] == "s"
    plain = ours.astype(object).where(ours.notna(), None).to_dict("records")
    assert plain == theirs.to_dicts()
    if wide:
        times = [trial.metrics["wall_time"].value for trial in found[:8]]
        assert ours["wall_time"].dropna().tolist() == times
        assert ours["outcome"].tolist() == ["passed"] * 8 + ["timed_out"]
        return
    assert main(["export", f"--workspace={workspace}", f"--json={tmp_path / 'x.json'}"]) == 0
    rows = json.loads((tmp_path / "x.json").read_text())
    values = [(row["execution_id"], row["metric"], row["value"]) for row in rows]
    assert set(values) == set(theirs[["execution_id", "metric", "value"]].rows())
    assert len(values) == len(theirs)
    assert theirs.columns == list(rows[0])
    assert pandas.isna(ours["metric"].iloc[-1]), "a trial that failed has a row"


class Read(HTMLParser):
    """The elements of a page, the text of each cell, and its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile(name: str = "one", **facts: Any) -> dict[str, Any]:
    document = summary(name=name, method=HOSTILE, metrics={"<b>$a$</b>": 2.0}, **facts)
    document["perfrun"]["quality"]["grade"] = "<i>"
    return document


def test_hostile_names_are_text_in_html_and_on_a_terminal(tmp_path: Path) -> None:
    failed = hostile("two", status="failed")
    failed["perfrun"]["outcome"]["reason"] = "<script>alert(1)</script>\x1b]0;x\x07\\(a\\)"
    write(tmp_path, hostile(), failed)
    found = perfrun.load(tmp_path)
    with pytest.warns(UserWarning, match="1 of the trials are in both sets"):
        compared = found[:1].compare(found[:1])
    shown = [found, found[0], found[1], *found.measurements, compared]
    for one in shown:
        page = one._repr_html_()
        read = Read(page)
        assert read.tags <= {"div", "table", "thead", "tbody", "tr", "th", "td", "span", "br"}
        assert read.attributes <= {"class", "style"}
        assert "<img src=x" in read.text
        assert "$x" not in page, "MathJax finds no formula"
        assert "\\(" not in page
        for text in (page, repr(one)):
            assert not set(text) & {"\x1b", "\x07", "\r"}
    for frame in (found.to_pandas(), found.to_polars()):
        assert "\x1b" not in "".join(frame["method"])


def test_a_notebook_shows_few_rows_of_many(tmp_path: Path) -> None:
    documents = [summary(method=f"pkg.mod.Case.m{n:03}", name=f"t{n}") for n in range(120)]
    write(tmp_path, *documents)
    found = perfrun.load(tmp_path)
    assert len(found._repr_html_()) < 20_000
    assert repr(found).endswith("... and 190 more rows")
    assert repr(found).startswith("120 trials of 120 methods\n")


def test_results_and_comparisons_are_drawn(workspace: Path, tmp_path: Path) -> None:
    found = perfrun.load(workspace)
    change = found.filter(label="before").compare(found.filter(label="after"))
    for picture in (found.plot("history"), change.plot(theme="dark")):
        assert picture._repr_png_()[0].startswith(b"\x89PNG")
        picture.save(tmp_path / "picture.svg")
        assert "pkg.cases.Cases.spin" in (tmp_path / "picture.svg").read_text()
    with pytest.raises(UsageError, match="has no samples"):
        found.plot()
    with pytest.raises(UsageError, match="must be one of distribution, history, memory"):
        found.plot("pie")
    with pytest.raises(UsageError, match="no trial has this metric"):
        found.plot("history", metric="none")
    with pytest.raises(UsageError, match="none of the 1 trials has figures"):
        found[8:].plot()


def test_a_missing_package_is_named_with_what_installs_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingPackage, match=r"to_polars\(\) needs .*-m pip install polars"):
        perfrun.load(workspace).to_polars()
