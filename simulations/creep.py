"""A simulation of creep against a pinned baseline, as `perfrun detect --creep_baseline` judges it.

    python -m simulations.creep                          # the table of docs/research/detection.md
    python -m simulations.creep --series=200 --seed=2

How often a bound of 5 % is passed within a year by noise alone, by a series that drifts to 4 % and
stays there, and how many nights it takes with slow drifts, beside the nights until they are 5 %.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime

import numpy as np

from perfrun.analysis.detection import watch_suite
from perfrun.changes.creep import Pin, creep_of
from perfrun.changes.watched import WatchedSeries, history_of, watched_of
from perfrun.store.query import Origin, Origins, Series, SeriesKey
from simulations.detect import KINDS
from simulations.noises import Floats

BOUND, SPREAD, YEAR = 0.05, 0.02, 365
DRIFTS = (0.0005, 0.001, 0.002)
_BEGIN = datetime(2026, 1, 1, 23, 0)
_PIN = Pin(name="begin", day=_BEGIN.toordinal(), days={})
_KEY = SeriesKey(
    method="", metric="m", environment="", hardware="", driver="", source="", settings=""
)


def histories(table: Floats) -> list[WatchedSeries]:
    """Return each row as the history of a method, a value a night."""
    origins = Origins([_origin(night) for night in range(table.shape[1])])
    made = [
        watched_of(
            Series(
                key=replace(_KEY, method=f"{at:06}"),
                unit="s",
                direction="lower",
                origins=origins,
                values=row.tolist(),
            )
        )
        for at, row in enumerate(table)
    ]
    return [one for one in made if not isinstance(one, str)]


def _origin(night: int) -> Origin:
    return Origin(
        execution_id=str(night),
        run_id=str(night),
        timestamp=_BEGIN.timestamp() + night * 86400,
        status="passed",
        grade="A",
        disturbed=False,
        commits={},
        label="",
        summary_path="",
    )


def passed(table: Floats, bound: float = BOUND) -> Floats:
    """Return the nights, from the first of the table on, with which its rows passed the bound.

    Infinite for a row that is not beyond it at the end.
    """
    several = histories(table)
    found = creep_of(several, (), (), _PIN, bound)
    nights = np.full(len(several), math.inf)
    for row in found.rows:
        if row.state == "beyond":
            night = date.fromisoformat(row.night).toordinal() - _BEGIN.toordinal()
            nights[int(row.method)] = night
    return nights


def ever_passed(table: Floats, bound: float = BOUND) -> float:
    """Return the share of the rows that passed the bound, those that came back included."""
    return len(creep_of(histories(table), (), (), _PIN, bound).rows) / len(table)


def changes_found(table: Floats) -> float:
    """Return the share of the rows in which the rules of `detect` find a change."""
    watches = watch_suite([history_of(one) for one in histories(table)])
    return float(np.mean([bool(watch.changes()) for watch in watches]))


def _write(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=500, help="series of each kind (500)")
    parser.add_argument("--seed", type=int, default=20261123, help="of all random numbers")
    given = parser.parse_args(arguments)
    nights = np.arange(YEAR)
    names = [f"{100 * drift:g} %" for drift in DRIFTS]
    _write("noise", "none", "to 4 %", *names, "0.1 %: detect")
    for kind, noise in KINDS.items():
        table = noise(np.random.default_rng([given.seed, 2]), (given.series, YEAR), SPREAD)
        to_four = np.minimum(1.001**nights, 1.04)
        cells = [f"{100 * ever_passed(own):.1f}" for own in (table, table * to_four)]
        drifting = [table * (1 + drift) ** nights for drift in DRIFTS]
        for own in drifting:
            told = passed(own)
            share = 100 * float(np.mean(np.isfinite(told)))
            cells.append(f"{share:.0f}, {np.median(told):.0f}")
        _write(kind, *cells, f"{100 * changes_found(drifting[1]):.0f}")
    true = [math.log1p(BOUND) / math.log1p(drift) for drift in DRIFTS]
    _write("nights until it is 5 %", "", "", *(f"{n:.0f}" for n in true), "")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
