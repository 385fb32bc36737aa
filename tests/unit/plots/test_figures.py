"""Pictures as files: every value and label is in them, and the same values give the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from perfrun.errors import UsageError
from perfrun.plots import figures, picture
from perfrun.plots.data import (
    Bar,
    Curve,
    Cut,
    DistributionData,
    HistoryData,
    Level,
    MemoryData,
    Observed,
    Paired,
    PairsData,
    Panel,
    Phase,
    Shift,
    VersusData,
    overlaid,
)
from perfrun.plots.style import LOOKS
from tests.unit.plots.pictures import marks, texts

HOSTILE = "a$x_1$<script>&\x1b[2J\u202e\n" + "b" * 5000


def history(count: int = 20, method: str = "pkg.cases.Cases.spin") -> HistoryData:
    observations = tuple(
        Observed(
            time=1.79e9 + 86400 * at,
            value=0.012 if at < 10 else 0.0135,
            low=0.0119 if at < 10 else 0.0133,
            high=0.0122 if at < 10 else 0.0138,
            trials=3,
            disturbed=at == 3,
            counts=at != 3,
        )
        for at in range(count)
    )
    return HistoryData(
        method=method,
        metric="wall_time",
        unit="s",
        direction="lower",
        about=("python3.11 torch", "AMD EPYC"),
        observations=observations,
        in_order_of_time=True,
        levels=(Level(first=0, last=9, value=0.012), Level(first=10, last=19, value=0.0135)),
        shifts=(Shift(first=10, ratio=1.125, direction="worse"),),
        cuts=(
            Cut(first=6, kind="driver", text="driver 535 \u2192 550", begins_anew=True),
            Cut(first=15, kind="torch", text="torch 2.8 \u2192 2.9", begins_anew=False),
        ),
    )


def distribution() -> DistributionData:
    return DistributionData(
        method="pkg.cases.Cases.spin",
        series="step",
        trial="2026-11-22-10-00-00-000000",
        label="",
        environment="python3.11",
        about=("passed",),
        first_call_s=0.5,
        warmup_s=(0.02, 0.0108),
        warmup_every=1,
        times_s=tuple(0.0100 + 0.0001 * (at % 7) for at in range(40)),
        times_every=1,
        steady_from=5,
        kind="warmup",
        median_s=0.0103,
        low_s=0.0102,
        high_s=0.0104,
    )


def distributions(method: str = "pkg.cases.Cases.spin") -> tuple[DistributionData, ...]:
    """Three trials, the last two of them 5 and 10 % slower; the last has one step of a second."""
    found = []
    for number, ratio in enumerate((1.0, 1.05, 1.1)):
        one = distribution()
        times = tuple(time * ratio for time in one.times_s)
        found.append(
            replace(
                one,
                method=method,
                trial=f"trial-{number}",
                label="after" if number else "before",
                times_s=times if number < 2 else (*times[:-1], 1.0),
                median_s=0.0103 * ratio,
            )
        )
    return tuple(found)


def pairs() -> PairsData:
    return PairsData(
        method="pkg.cases.Cases.spin",
        metric="wall_time",
        about=(),
        pairs=tuple(
            Paired(number=at, ratio=1.05 + 0.01 * (at % 3), first="ab"[at % 2], disturbed=at == 4)
            for at in range(1, 9)
        ),
        ratio=1.06,
        low=1.05,
        high=1.07,
        verdict="slower",
        direction="lower",
    )


def versus() -> VersusData:
    bars = (
        Bar(label="torch", value=0.0041, low=0.0040, high=0.0043),
        Bar(label="tensorflow", value=0.0052, low=None, high=None),
        Bar(label="jax", value=None, low=None, high=None, failure="crashed (SIGSEGV)"),
    )
    return VersusData(
        title="perfrun versus: resnet50",
        metric="latency_s",
        unit="s",
        direction="lower",
        about=("here",),
        cases={"inference, batch 1": bars, "training, batch 8": bars},
    )


def memory() -> MemoryData:
    times = (0.0, 1.0, 2.0, 3.0)
    return MemoryData(
        method="pkg.cases.Cases.spin",
        about=("passed",),
        panels=(
            Panel(
                name="memory",
                unit="bytes",
                curves=(Curve(name="process", times=times, values=(1e8, 2e8, 3e8, 2.5e8)),),
            ),
            Panel(
                name="CPU",
                unit="%",
                curves=(Curve(name="process", times=times, values=(0.0, 90.0, 95.0, 50.0)),),
            ),
        ),
        phases=(
            Phase(name="start", begin=0.0, end=0.1),
            Phase(name="import", begin=0.1, end=1.0),
            Phase(name="method", begin=1.0, end=3.0),
        ),
    )


def svg(figure: object) -> bytes:
    return picture.rendered(figure, ".svg")  # type: ignore[arg-type]


def test_a_history_has_every_observation_change_and_cut() -> None:
    drawn = svg(figures.history(history()))
    look = LOOKS["light"]
    # One mark of each kind is the legend's.
    assert marks(drawn, look.main) == 19 + 1
    assert marks(drawn, look.faint) >= 1 + 1
    found = texts(drawn)
    for text in (
        "pkg.cases.Cases.spin",
        "+12 % worse",
        "driver 535 \u2192 550",
        "torch 2.8 \u2192 2.9",
        "wall time (ms)",
        "disturbed, does not count",
        "95 % interval",
    ):
        assert text in found
    assert any("lower is better; python3.11 torch; AMD EPYC" in one for one in found)


def test_several_histories_are_one_picture_and_many_changes_of_a_framework_one_line() -> None:
    nightly = tuple(
        Cut(first=at, kind="torch", text=f"torch {at}", begins_anew=False) for at in range(1, 20)
    )
    other = replace(history(), method="pkg.cases.Cases.other", cuts=nightly)
    found = texts(svg(figures.history(history(), other, zero=True)))
    assert {"pkg.cases.Cases.spin", "pkg.cases.Cases.other"} <= set(found)
    assert "torch changed (19 times)" in found
    assert "torch 7" not in found
    assert found.count("0") == 2  # the axes of values begin at zero


def test_a_year_has_a_band_and_a_history_by_commits_has_numbers() -> None:
    year = replace(history(365), in_order_of_time=False)
    found = texts(svg(figures.history(year)))
    assert "observation, in the order of commits" in found
    assert "95 % interval" in found


def test_a_distribution_has_every_sample_and_says_what_is_above_the_axis() -> None:
    drawn = svg(figures.distribution(distribution()))
    found = texts(drawn)
    look = LOOKS["light"]
    assert marks(drawn, look.main) == 40 + 2  # not steady and steady, each with its legend
    assert marks(drawn, look.second) == 1 + 1
    assert "first call 500 ms" in found
    assert "median 10.3 ms" in found
    assert "2 above the axis, up to 500 ms" in found
    assert "35 steady samples" in found


def test_several_trials_are_curves_over_each_other_and_far_steps_are_beyond_the_axis() -> None:
    both = (*distributions(), *distributions(method="pkg.cases.Cases.other"))
    drawn = svg(figures.distribution(*both, width=1200))
    found = texts(drawn)
    assert "before, trial-0: median 10.3 ms, longest 10.6 ms, 35 steady" in found
    assert found.count("after, trial-2: median 11.33 ms, longest 1 s, 35 steady") == 2
    assert {"pkg.cases.Cases.spin", "pkg.cases.Cases.other"} <= set(found)
    # Trials of a label share their colour; each has its median, in each of the two diagrams.
    first, second = LOOKS["light"].arms[:2]
    assert (marks(drawn, first), marks(drawn, second)) == (2, 4)
    low, high = overlaid(distributions())[0].ends
    assert 0.0099 < low < 0.01
    assert 0.0116 < high < 0.012
    alike = replace(distribution(), times_s=(0.01,) * 9, steady_from=None)
    svg(figures.distribution(alike, alike))  # neither a spread nor a label to tell them apart


def test_pairs_have_a_mark_each_and_the_verdict() -> None:
    drawn = svg(figures.pairs(pairs()))
    found = texts(drawn)
    look = LOOKS["light"]
    assert marks(drawn, look.main) == 4 + 2
    assert marks(drawn, look.second) == 4 + 1
    assert "B/A 1.060 (95 % interval 1.050..1.070), slower" in found
    assert "A ran first, disturbed" in found
    assert "0 %" in found


def test_a_comparison_has_a_bar_for_each_arm_and_says_why_one_has_none() -> None:
    found = texts(svg(figures.versus(versus())))
    assert found.count("4.1 ms") == found.count("5.2 ms") == 2
    assert found.count("no figure: crashed (SIGSEGV)") == 2
    assert {"inference, batch 1", "training, batch 8"} <= set(found)


@pytest.mark.parametrize("width", [400, 4000])
def test_each_picture_has_room_at_any_width(width: int) -> None:
    # What has none is a warning of matplotlib, and so an error here.
    for figure in (
        figures.history(history(), width=width),
        figures.distribution(distribution(), width=width),
        figures.distribution(*distributions(), width=width),
        figures.versus(versus(), width=width),
        figures.memory(memory(), width=width),
        figures.pairs(pairs(), width=width),
    ):
        assert f'width="{width * 0.72:g}pt"'.encode() in svg(figure)


def test_a_timeline_has_curves_and_phases() -> None:
    found = texts(svg(figures.memory(memory())))
    assert {"import", "method", "process, peak 286.1 MiB", "process, peak 95 %"} <= set(found)
    assert "start" not in found  # has no room


@pytest.mark.parametrize("suffix", picture.FORMATS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_same_values_give_the_same_bytes_and_no_setting_changes(
    theme: str, suffix: str
) -> None:
    before = dict(mpl.rcParams)
    mpl.rcParams["axes.facecolor"] = "red"  # a reader's own setting
    try:
        one, other = (
            picture.rendered(figures.pairs(pairs(), theme=theme, width=400), suffix)
            for _ in range(2)
        )
        assert mpl.rcParams["axes.facecolor"] == "red"
    finally:
        mpl.rcParams["axes.facecolor"] = before["axes.facecolor"]
    assert one == other
    assert dict(mpl.rcParams) == before
    if suffix == ".svg":
        assert b"<dc:date>" not in one
        assert b"Matplotlib v" not in one
        assert b"#ff0000" not in one
        assert LOOKS[theme].ground.encode() in one  # type: ignore[index]


def test_a_name_from_outside_is_text_and_no_formula() -> None:
    data = replace(history(method=HOSTILE), about=(HOSTILE,))
    drawn = svg(figures.history(data))
    ElementTree.fromstring(drawn)
    found = texts(drawn)
    title = next(one for one in found if one.startswith("a$x_1$<script>"))
    assert len(title) < 200
    assert "\x1b" not in drawn.decode()
    assert "\u202e" not in drawn.decode()
    assert b"<script" not in drawn
    # What no font has is a box in a PNG, and no warning.
    assert picture.rendered(
        figures.versus(replace(versus(), title="\u6a21\u578b")), ".png"
    ).startswith(b"\x89PNG")


def test_a_picture_takes_the_place_of_an_older_one_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text("old")
    picture.save(b"new", path)
    assert path.read_bytes() == b"new"
    assert [one.name for one in tmp_path.iterdir()] == ["a.svg"]
    with pytest.raises(UsageError, match=r"must end in \.svg or \.png"):
        picture.check_path(tmp_path / "a.pdf")
    with pytest.raises(UsageError, match="there is no folder"):
        picture.check_path(tmp_path / "b" / "a.svg")
