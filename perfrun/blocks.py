"""Randomised blocks of fresh processes: every side once in each, until a rule has seen enough.

The engine of `perfrun ab` (two sides, a case for each method) and `perfrun versus` (any number of
sides, a case for each phase and batch size). Slow drift of the machine falls on all sides of a
block alike, and the order that is drawn keeps any side from always coming after the same other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perfrun.document import TrialResult
from perfrun.summary_record import SummaryRecord, record_of

Reason = Literal["decided", "max_pairs", "time_budget", "failed", "no_figure", "interrupted"]
MOST_FAILURES = 3  # blocks in a row without the figure that is asked for


@dataclass(frozen=True, kw_only=True)
class Block:
    """One trial of each side, run right after another."""

    number: int  # from 1
    order: tuple[str, ...]  # the sides as they were run
    readings: Mapping[str, SummaryRecord]  # by side


# Runs the trial of that number, or takes over what was run before; None when interrupted.
Trial = Callable[[int], TrialResult | None]
# Whether a case is over, and why; asked after each of its blocks.
Asked = Callable[[str, Sequence[Block]], Reason | None]


@dataclass(frozen=True, kw_only=True)
class BlocksResult:
    """All blocks, by case, in their order."""

    blocks: Mapping[str, tuple[Block, ...]]
    stopped_by: Mapping[str, Reason]
    interrupted: bool


@dataclass
class _Case:
    sides: dict[str, Trial]
    blocks: list[Block] = field(default_factory=list)
    stopped_by: Reason | None = None
    cost_s: float = 0.0  # of the last block


class Blocks:
    """The loop over blocks and cases."""

    def __init__(
        self,
        cases: Mapping[str, Mapping[str, Trial]],
        asked: Asked,
        *,
        most: int,
        time_s: float | None,
        seed: int,
        is_figure: Callable[[SummaryRecord], bool] | None = None,
        taken_over_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """With `is_figure`, a side that has had none so often leaves its case and the others go on.

        `most` blocks of each case; no block is begun that would end after `time_s`, but the first.
        `taken_over_s`: what those trials took that were run before and taken over so far.
        """
        self._cases = {name: _Case(dict(sides)) for name, sides in cases.items()}
        self._asked, self._most, self._time_s = asked, most, time_s
        self._seed, self._is_figure = seed, is_figure
        self._taken_over_s = taken_over_s
        self._begun_s = time.monotonic()

    def run(self) -> BlocksResult:
        """Run until every case is over. Interrupted, the whole blocks are given back."""
        interrupted = not all(self._round(number) for number in range(1, self._most + 1))
        left: Reason = "interrupted" if interrupted else "max_pairs"
        return BlocksResult(
            blocks={name: tuple(case.blocks) for name, case in self._cases.items()},
            stopped_by={name: case.stopped_by or left for name, case in self._cases.items()},
            interrupted=interrupted,
        )

    def _round(self, number: int) -> bool:
        """One block of each case that is still open; False when interrupted."""
        names = [name for name, case in self._cases.items() if case.stopped_by is None]
        random.Random(f"{self._seed}/{number}").shuffle(names)  # noqa: S311
        return all(self._block(name, number) for name in names)

    def _block(self, name: str, number: int) -> bool:
        case = self._cases[name]
        if self._out_of_time(case):
            case.stopped_by = "time_budget"
            return True
        order = list(case.sides)
        random.Random(f"{self._seed}/{number}/{name}").shuffle(order)  # noqa: S311
        begun_s = self._elapsed_s()
        readings: dict[str, SummaryRecord] = {}
        for side in order:
            result = case.sides[side](number)
            if result is None:
                return False
            readings[side] = record_of(result.document, Path(result.summary))
        case.cost_s = self._elapsed_s() - begun_s
        case.blocks.append(Block(number=number, order=tuple(order), readings=readings))
        case.stopped_by = self._asked(name, case.blocks) or self._without_the_lost(case)
        return True

    def _out_of_time(self, case: _Case) -> bool:
        """The first block of a case is run whatever the time."""
        if self._time_s is None or not case.blocks:
            return False
        return self._elapsed_s() + case.cost_s > self._time_s

    def _elapsed_s(self) -> float:
        """Before a run was resumed, too."""
        return time.monotonic() - self._begun_s + self._taken_over_s()

    def _without_the_lost(self, case: _Case) -> Reason | None:
        """Leave out sides that have no figure again and again; over when none is left."""
        last = case.blocks[-MOST_FAILURES:]
        if self._is_figure is None or len(last) < MOST_FAILURES:
            return None
        for side in list(case.sides):
            if not any(self._is_figure(block.readings[side]) for block in last):
                del case.sides[side]
        return None if case.sides else "failed"
