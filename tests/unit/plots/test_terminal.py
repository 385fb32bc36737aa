"""Pictures as text: at most as wide as the terminal, and in ASCII where it shows no more."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from perfrun.plots import figures
from perfrun.plots.data import Bar, HistoryData, overlaid
from perfrun.plots.terminal import DRAWN, Medium
from perfrun.shown import width as columns_of
from tests.unit.plots.test_figures import (
    HOSTILE,
    distribution,
    distributions,
    history,
    memory,
    pairs,
    svg,
    versus,
)

DATA: dict[str, Any] = {
    "history": history(),
    "distribution": distribution(),
    "distributions": overlaid(distributions())[0],
    "pairs": pairs(),
    "versus": versus(),
    "memory": memory(),
}


@pytest.mark.parametrize("width", [59, 79, 119])
@pytest.mark.parametrize("kind", DRAWN)
def test_a_picture_fits_its_terminal(kind: str, width: int) -> None:
    shown = DRAWN[kind](DATA[kind], Medium(width=width, blocks=True))
    assert max(map(columns_of, shown)) <= width
    assert max(map(columns_of, shown)) > 0.8 * width
    plain = "\n".join(DRAWN[kind](DATA[kind], Medium(width=width, blocks=False)))
    assert not set(re.findall(r"[^\n\x20-\x7e]", plain)) - set("\u2192\u2026")


def test_a_history_on_a_terminal_has_its_observations_and_names_its_changes() -> None:
    shown = DRAWN["history"](history(), Medium(width=100, blocks=True))
    text = "\n".join(shown)
    assert text.count("\u25cf") == 19
    assert text.count("\u00d7") == 1 + 1  # one is the note's
    assert any(re.fullmatch(r"  \d{4}-\d\d-\d\d  \+12 % worse", line) for line in shown)
    assert "driver 535 \u2192 550" in text
    assert "1 disturbed observation, not counted" in text


def test_trials_over_each_other_on_a_terminal_have_a_letter_each() -> None:
    data = overlaid(distributions())[0]
    shown = DRAWN["distributions"](data, Medium(width=100, blocks=True))
    diagram = [line for line in shown if "\u2502" in line]
    for letter in "abc":
        assert sum(line.count(letter) for line in diagram) >= 15, letter
    # The slower trials lie to the right of the first, and a step of a second is beyond the axis.
    first, last = (min(line.find(x) for line in diagram if x in line) for x in "ac")
    assert first < last
    assert "  a before, trial-0: median 10.3 ms, longest 10.6 ms, 35 steady" in shown
    assert "  c after, trial-2: median 11.33 ms, longest 1 s, 35 steady" in shown


def test_pairs_and_bars_on_a_terminal_have_their_figures() -> None:
    shown = "\n".join(DRAWN["pairs"](pairs(), Medium(width=80, blocks=True)))
    assert shown.count("\u25cf") == 4 + 1
    assert shown.count("\u25a0") == 4 + 1
    assert "B/A 1.060 (95 % interval 1.050..1.070), slower" in shown
    bars = DRAWN["versus"](versus(), Medium(width=80, blocks=True))
    assert sum("4.1 ms (4..4.3)" in line for line in bars) == 2
    assert sum("no figure: crashed (SIGSEGV)" in line for line in bars) == 2


@pytest.mark.parametrize(
    "values", [[1e100, 1e-100, 0.0, -1e99], [0.0] * 4, [1e-100] * 4, [-1.0, -2.0, -3.0, -4.0]]
)
def test_figures_of_any_size_can_be_drawn(values: list[float]) -> None:
    # Metrics are numbers from outside. A warning of numpy or matplotlib is an error here.
    sizes = [abs(value) for value in values]
    observations = zip(history().observations, values, strict=False)
    drawn: dict[str, Any] = {
        "history": replace(
            history(),
            observations=tuple(replace(one, value=v, low=-1e99, high=v) for one, v in observations),
            levels=(),
            shifts=(),
            cuts=(),
        ),
        "distribution": replace(distribution(), times_s=tuple(sizes), first_call_s=1e17),
        "versus": replace(
            versus(), cases={"a": tuple(Bar(label="b", value=v, low=0, high=1e100) for v in sizes)}
        ),
    }
    for kind, data in drawn.items():
        assert DRAWN[kind](data, Medium(width=59, blocks=True))
        assert svg(getattr(figures, kind)(data))


@pytest.mark.parametrize("count", [1, 2, 400])
def test_a_history_of_any_length_can_be_drawn(count: int) -> None:

    data: HistoryData = replace(
        history(count),
        observations=history(count).observations,
        levels=(),
        shifts=(),
        cuts=(),
        method=HOSTILE,
    )
    for medium in (Medium(width=59, blocks=True), Medium(width=59, blocks=False)):
        shown = DRAWN["history"](data, medium)
        assert max(map(columns_of, shown)) <= 59
        assert all(line.isprintable() for line in shown)
