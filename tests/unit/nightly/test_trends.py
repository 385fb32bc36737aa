"""Tonight's figures beside those of the nights before: ratios, the usual level, sparklines."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from perfrun.analysis.stats import median, median_interval
from perfrun.nightly.markdown import markdown
from perfrun.nightly.night_state import Nights
from perfrun.nightly.report import MethodReport, NightFigure, NightReport, Trend, report_document
from perfrun.nightly.screen import show
from perfrun.nightly.suite import Night
from perfrun.nightly.trends import last_night_text, usual_text, with_trends
from perfrun.reports.sparkline import sparkline
from perfrun.reports.terminal import Terminal
from tests.unit.nightly.test_report import method, readings

DAY = 86400.0
TONIGHT = datetime(2026, 11, 22, 2, 30).timestamp()


def report_of(*methods: MethodReport, begun: float = TONIGHT) -> NightReport:
    return NightReport(
        night=f"n-{datetime.fromtimestamp(begun):%m-%d-%H}",
        suite="n",
        owner=None,
        begun=begun,
        ended=begun + 60,
        deadline=None,
        commits={},
        methods=methods,
        errors=(),
        notes=(),
    )


def timed(value: float | None, width: float | None = None, **facts: Any) -> MethodReport:
    """A method whose wall time was that, with an interval of this half width."""
    low, high = (None, None) if width is None else (value - width, value + width)  # type: ignore[operator]
    figures = [
        NightFigure(
            metric="wall_time", median=v, unit="s", direction="lower", trials=3, low=low, high=high
        )
        for v in [value]
        if v is not None
    ]
    given: dict[str, Any] = {"environment": "e", "unit": "e", "method": "a.B.c", "owner": None}
    given |= {"canary": False, "state": "ok", "why": None, "asked": 3, "trials": 3}
    given |= {"disturbed": 0, "failures": ()}
    return MethodReport(**given | facts, figures=tuple(figures))


def saved(nights: Nights, *reports: NightReport) -> None:
    """Write the reports as nights have written them."""
    for report in reports:
        night = Night(night=report.night, suite="n", begun=report.begun, ended=report.ended)
        nights.save(night)
        text = json.dumps(report_document(report))
        (nights.folder_of(night) / "report.json").write_text(text)


def trend_of(folder: Path, tonight: MethodReport, before: Sequence[Any]) -> Trend:
    """The trend of tonight; `before` are methods by night, the last first, None for no night."""
    nights = Nights(folder)
    reports = [
        report_of(one, begun=TONIGHT - number * DAY)
        for number, one in enumerate(before, start=1)
        if one is not None
    ]
    saved(nights, *reports)
    now = Night(night="tonight", suite="n", begun=TONIGHT)
    report = with_trends(report_of(tonight), nights.reports_before(now))
    trend = report.methods[0].figures[0].trend
    assert trend is not None
    return trend


def test_a_missing_night_is_a_gap_and_so_is_one_without_the_figure(tmp_path: Path) -> None:
    before = [timed(1.0), None, timed(None), timed(1.0), timed(1.2)]
    found = trend_of(tmp_path, timed(2.0), before)
    assert found.history == (1.2, 1.0, None, None, 1.0, 2.0)
    assert sparkline(found.history) == "▂▁··▁█"
    assert (found.last_night, found.ratio) == ("n-11-21-02", 2.0)
    assert (found.nights, found.nights_median, found.nights_ratio) == (3, 1.0, 2.0)


def test_the_night_before_without_the_figure_is_nothing_to_compare_with(tmp_path: Path) -> None:
    found = trend_of(tmp_path, timed(2.0), [None, timed(1.0)])
    assert (found.last_night, found.ratio, found.history) == (None, None, (1.0, None, 2.0))
    assert last_night_text(found) == "-"
    assert usual_text(found) == "+100.0 % (1 night)"


def test_fourteen_nights_at_most_are_in_the_median(tmp_path: Path) -> None:
    before = [timed(1.0 + (number % 2) / 10) for number in range(20)]
    found = trend_of(tmp_path, timed(1.05), before)
    assert (found.nights, len(found.history)) == (14, 15)
    assert usual_text(found) == "+0.0 % (±7.5 %)"


def test_a_first_night_has_nothing_before_it(tmp_path: Path) -> None:
    found = trend_of(tmp_path, timed(1.0), [])
    assert (found.history, found.nights, found.ratio) == ((1.0,), 0, None)
    assert (last_night_text(found), usual_text(found)) == ("-", "-")


def measured(values: Sequence[float]) -> MethodReport:
    interval = median_interval(values)
    assert interval is not None
    one = timed(median(values))
    figure = replace(one.figures[0], low=interval.low, high=interval.high)
    return replace(one, figures=(figure,))


def test_the_interval_of_the_ratio_covers_the_truth() -> None:
    draw = random.Random(1)
    night = Night(night="n", suite="n", begun=TONIGHT - DAY)
    covered = 0
    for _ in range(200):
        before, now = (
            measured([level * draw.lognormvariate(0.0, 0.05) for _ in range(5)])
            for level in (1.0, 1.1)
        )
        document = json.loads(json.dumps(report_document(report_of(before))))
        found = with_trends(report_of(now), [(night, document)])
        trend = found.methods[0].figures[0].trend
        assert trend is not None
        assert trend.low is not None
        assert trend.high is not None
        covered += trend.low <= 1.1 <= trend.high
    assert covered >= 186  # of 200, at 95 %


def test_intervals_are_shown_where_there_are_some(tmp_path: Path) -> None:
    found = trend_of(tmp_path, timed(1.1, 0.01), [timed(1.0, 0.01)])
    assert last_night_text(found) == "+10.0 % (+8.5..+11.5)"
    bare = trend_of(tmp_path / "x", timed(1.1), [timed(1.0, 0.01)])
    assert (bare.low, last_night_text(bare)) == (None, "+10.0 %")


def test_what_was_measured_otherwise_does_not_compare_and_is_said(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    saved(nights, report_of(timed(1.0, series="old"), begun=TONIGHT - DAY))
    earlier = nights.reports_before(Night(night="t", suite="n", begun=TONIGHT))
    found = with_trends(report_of(timed(3.0, series="new")), earlier)
    trend = found.methods[0].figures[0].trend
    assert trend is not None
    assert trend.history == (None, 3.0)
    assert found.notes[0].startswith("Figures that begin anew")
    assert found.notes[0].endswith(": a.B.c.")
    same = with_trends(report_of(timed(3.0, series="old")), earlier)
    assert same.notes == ()


NOT_A_NUMBER = {"metric": "wall_time", "unit": "s", "median": float("nan"), "low": "x"}
ODD = {"method": "a.B.c", "environment": "e", "series": 7, "figures": [NOT_A_NUMBER]}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"methods": 1},
        {"methods": [1, {"method": ["a"], "environment": "e"}]},
        {"methods": [{**ODD, "figures": [{"metric": "wall_time"}, 3]}]},
        {"night": 5, "methods": [ODD]},
    ],
)
def test_a_report_of_another_version_costs_nothing(document: Any) -> None:
    night = Night(night="n", suite="n", begun=TONIGHT - DAY)
    found = with_trends(report_of(timed(1.0)), [(night, document)])
    trend = found.methods[0].figures[0].trend
    assert trend is not None
    assert trend.history == (None, 1.0)


@pytest.mark.parametrize(
    ("history", "shown"),
    [
        ((), ""),
        ((None,), ""),
        ((0.0, 0.0), "▅▅"),
        ((1.0, 1.01, 0.99), "▅▅▄"),  # noise is no step
        ((1.0, None, 8.0), "▁·█"),
        ((-1.0, -2.0), "█▁"),
        ((1e-308, 1e308), "▁█"),
        ((-1e308, 1e308), "▅▅"),  # farther apart than a number can say
    ],
)
def test_a_sparkline(history: tuple[float | None, ...], shown: str) -> None:
    assert sparkline(history) == shown


def test_each_setting_of_a_sweep_is_beside_its_own_nights(tmp_path: Path) -> None:
    small, large = timed(1.0, setting={"batch": "1"}), timed(100.0, setting={"batch": "8"})
    nights = Nights(tmp_path)
    saved(nights, report_of(small, large, begun=TONIGHT - DAY))
    report = report_of(timed(2.0, setting={"batch": "1"}), timed(110.0, setting={"batch": "8"}))
    night = Night(night="tonight", suite="n", begun=TONIGHT)
    found = with_trends(report, nights.reports_before(night))
    trends = [one.figures[0].trend for one in found.methods]
    assert [trend and trend.ratio for trend in trends] == pytest.approx([2.0, 1.1])


def test_only_primary_figures_have_a_trend_and_one_stands_for_the_method() -> None:
    def figure(name: str, direction: str = "lower", of: str | None = None) -> NightFigure:
        return NightFigure(
            metric=name, median=1.0, unit="", direction=direction, trials=1, derived_from=of
        )

    rows = (
        *(figure("peak_rss_bytes"), figure("size", "none"), figure("p90", of="x")),
        *(figure("loss"), figure("wall_time")),
    )
    one = replace(timed(1.0), figures=rows)
    found = with_trends(report_of(one), []).methods[0]
    assert [f.metric for f in found.figures if f.trend] == [
        *("peak_rss_bytes", "size", "loss", "wall_time"),
    ]
    names = []
    while found.main_figure:
        names.append(found.main_figure.metric)
        found = replace(found, figures=tuple(f for f in found.figures if f.metric not in names))
    assert names == ["wall_time", "loss", "size", "peak_rss_bytes"]


def test_the_reports_have_the_columns(tmp_path: Path) -> None:
    saved(Nights(tmp_path), report_of(timed(1.0, 0.01), begun=TONIGHT - DAY))
    earlier = Nights(tmp_path).reports_before(Night(night="t", suite="n", begun=TONIGHT))
    report = with_trends(report_of(timed(1.1, 0.01)), earlier)
    cells = ("+10.0 % (+8.5..+11.5)", "+10.0 % (1 night)", "▁█", "wall_time 1.1 s (1.09..1.11)")
    text = markdown(report).replace("\\", "")
    stream = io.StringIO()
    show(report, Terminal(stream, stream, quiet=True))
    assert stream.getvalue().startswith("n: all well\n")
    for heading in ("against last night", "against the median of 14", "last nights", *cells):
        assert heading in text
        assert heading in stream.getvalue()


@pytest.mark.parametrize(
    "values", [(9e307, -9e307, 9e307), (5e-324,) * 3, (9e307,) * 2, (0.0, 0.0), (-1.0, 1.0)]
)
def test_figures_at_the_end_of_the_numbers_cost_no_report(
    tmp_path: Path, values: Sequence[float]
) -> None:
    own = method(readings(tmp_path, *({"wall_time": value} for value in values)))
    night = Night(night="n", suite="n", begun=TONIGHT - DAY)
    for times in (1, 3):
        before = [(night, json.loads(json.dumps(report_document(report_of(own)))))] * times
        found = with_trends(report_of(own), before)
        assert "against last night" in markdown(found)
        trend = found.methods[0].figures[0].trend
        assert trend is not None
        shown = (trend.low, trend.high, trend.ratio, trend.nights_ratio, trend.nights_spread)
        assert all(math.isfinite(value) for value in shown if value is not None)
