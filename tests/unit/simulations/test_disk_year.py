"""A simulated year as files, through the commands: a small one."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulations.disk_year import TRIALS, detect_on_disk, tally, write_year
from simulations.year import MadeChange, Year, make


def small(seed: int) -> Year:
    """Six series, 140 nights, and one change of 30 % that nobody could miss."""
    year = make(series=6, nights=140, changes=0, seed=seed)
    histories = list(year.histories)
    values = [
        v * 1.3 if night >= 50 else v
        for v, night in zip(histories[0].values, histories[0].nights, strict=True)
    ]
    first = type(histories[0])(values=values, nights=histories[0].nights, direction="lower")
    change = MadeChange(series=0, night=50, size=0.3, spread=year.spreads[0])
    return Year(
        histories=(first, *histories[1:]),
        owners=year.owners,
        made=(change,),
        slow=year.slow,
        spreads=year.spreads,
        back=year.back,
    )


@pytest.mark.slow
def test_a_small_year_on_disk_is_indexed_searched_and_judged(tmp_path: Path) -> None:
    year = small(seed=3)
    nights = sum(len(history.nights) for history in year.histories)
    assert write_year(year, tmp_path, seed=3) == TRIALS * nights
    rows, taken = detect_on_disk(year, tmp_path)
    counts = tally(year, rows)
    assert counts["found"] == 1
    assert counts["false"] <= 1
    assert set(taken) == {"index", "index again", "detect", "report"}
    # The swap of the machine is no change: it began new series.
    assert not any(row["hardware"] == "" for row in rows)
