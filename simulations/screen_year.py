"""A simulation of a year of nights that screen, then confirm by pairs, beside `perfrun detect`.

    python -m simulations.screen_year                     # the table of docs/research/detection.md
    python -m simulations.screen_year --years=20 --seed=0
    python -m simulations.screen_year --on_disk=DIR --series=16 --nights=150 --changes=5

The year is that of `simulations.year`: 200 series of 0.5 to 3 % noise (Gaussian, log-normal, with
outliers, autocorrelated), 20 changes of 3 to 15 %, a machine that is swapped, is down and has slow
nights. Every night, suspects are screened, and pairs of the last good night against the new one are
run, up to a share of the night's trials. The logarithmic ratio of a pair has 1.5 times the noise of
a night; where nights have outliers, so have the trials of pairs.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from perfrun.analysis.detection import Detected, detect
from perfrun.analysis.screening import (
    FEWEST_BEFORE,
    MOST_BEFORE,
    MOST_ODDS,
    MOST_RECENT,
    Deviation,
    Pot,
    chance,
    common_factor,
    deviations,
    is_asked_again,
    is_asked_anew,
    is_proven,
    is_worth_a_pair,
    levels_before,
    log_belief,
    log_evidence,
    log_growth,
)
from simulations.detect import outliers
from simulations.noises import Floats
from simulations.year import NOISES, MadeChange, Year, make
from simulations.year import score as score_of_detect

PAIR_NOISE = 1.5  # of the logarithmic ratio of a pair, over that of a night
CHUNK = 2  # pairs of a question before the order is looked at again
MOST_PAIRS = 120  # of a question
FURTHER = 5  # nights before the side that has refuted it, when it is asked again
FORGOTTEN = 7  # nights after which a question that is no suspect any more is dropped


@dataclass
class Question:
    """A suspect that pairs are run for."""

    part: int  # of the histories
    first: int  # night that seems to be the first at the new level
    before: int  # nights, whose trials are the two sides
    after: int
    shift: float
    noise: float
    odds: float
    seen: int  # the last night in which it was a suspect
    alpha: float = 0.0  # of the error; 0 until the first pair
    asked_odds: float = 0.0  # before the first pair
    pairs: list[float] = field(default_factory=list)
    log_pairs: float = 0.0
    log_before: float = 0.0  # the same when it got its alpha
    log_belief: float = 0.0

    def chance(self) -> float:
        return chance(self.odds, self.log_belief)

    def is_worth_a_pair(self) -> bool:
        growth = log_growth(self.shift, self.noise)
        is_worth = is_worth_a_pair(self.chance(), self.seen - self.first, growth)
        return is_worth and len(self.pairs) < MOST_PAIRS


@dataclass(frozen=True, kw_only=True)
class ScreenScore:
    """The counts of a simulated year."""

    made: int
    delays: tuple[int, ...]  # nights of the calendar
    delays_run: tuple[int, ...]  # the same in nights that the suite has run
    false: int
    suspects: int  # of all nights
    questions: int
    pairs: int
    trials: int  # of the nights
    missed: tuple[MadeChange, ...]
    seconds: float


class _Part:
    """A history with the level that confirmed changes have left it at."""

    def __init__(self, logs: Floats, nights: Sequence[int]) -> None:
        self.logs, self.nights = logs, nights
        self.places = {night: place for place, night in enumerate(nights)}
        self.found: dict[int, Deviation | None] = {}
        self.start = 0  # place of the first observation at the level of now


_WIDTH = MOST_BEFORE + MOST_RECENT


def screen(parts: Sequence[_Part], start: int = 0) -> None:
    """Screen each night of each part from `start` on, by itself and those before it."""
    for part in parts:
        for night in part.nights[start:]:
            part.found.pop(night, None)
        if len(part.logs) - start >= _WIDTH:
            rows = np.lib.stride_tricks.sliding_window_view(part.logs[start:], _WIDTH)
            for at, one in enumerate(deviations(rows)):
                part.found[part.nights[start + _WIDTH - 1 + at]] = one
    for count in range(FEWEST_BEFORE + 1, _WIDTH):
        own = [part for part in parts if len(part.logs) - start >= count]
        if own:
            table = np.array([part.logs[start : start + count] for part in own])
            for part, one in zip(own, deviations(table), strict=True):
                part.found[part.nights[start + count - 1]] = one


def without_common(year: Year) -> list[Floats]:
    """Return the logarithms of all values without what each night did to all of them."""
    by_night: dict[int, list[float]] = {}
    every = [np.log(np.asarray(history.values)) for history in year.histories]
    for logs, history in zip(every, year.histories, strict=True):
        for place, level in enumerate(levels_before(logs), start=FEWEST_BEFORE):
            by_night.setdefault(history.nights[place], []).append(float(logs[place] - level))
    factors = {night: common_factor(found) for night, found in by_night.items()}
    return [
        logs - np.array([factors.get(night, 0.0) for night in history.nights])
        for logs, history in zip(every, year.histories, strict=True)
    ]


class Nights:
    """The nights of a year, one after the other."""

    def __init__(self, year: Year, share: float, seed: int) -> None:
        self._year, self._share = year, share
        self._generator = np.random.default_rng([seed, 77])
        logs = without_common(year)
        self.parts = [
            _Part(own, history.nights) for own, history in zip(logs, year.histories, strict=True)
        ]
        screen(self.parts)
        self._changes = {change.series: change for change in year.made}
        self.open: dict[int, Question] = {}
        self._alarms: dict[int, list[Detected]] = {}
        for alarm in detect(year.histories):
            night = year.histories[alarm.series].nights[alarm.alarm]
            self._alarms.setdefault(night, []).append(alarm)
        self.pot = Pot()
        self.pairs = self.questions = self.suspects = self.trials = 0
        self.confirmed: list[tuple[Question, int]] = []

    def run(self, nights: int) -> None:
        for night in range(nights):
            self.night(night)

    def night(self, night: int) -> None:
        """Screen a night, and run its pairs."""
        self.pot = self.pot.after(1)
        there = [number for number, part in enumerate(self.parts) if night in part.places]
        self.trials += len(there)
        tonight = []
        for number in there:
            part = self.parts[number]
            found = part.found.get(night)
            question = self.open.get(number)
            if found is not None and found.is_suspect:
                self.suspects += 1
                question = self._asked(number, found, question, night)
                tonight.append(question)
            elif question is not None and question.log_pairs > 1:
                tonight.append(question)
            elif question is not None and night - question.seen > FORGOTTEN:
                self._give_back(question)
                del self.open[number]
        tonight += self._of_history(night, {q.part for q in tonight})
        self._run_pairs(night, tonight, round(self._share * len(there) / 2))

    def _run_pairs(self, night: int, tonight: list[Question], left: int) -> None:
        """Run at most so many pairs of tonight's questions, in the order of their promise."""
        while left > 0:
            waiting = [q for q in tonight if q.is_worth_a_pair()]
            if not waiting:
                break
            best = max(waiting, key=lambda q: q.chance() * log_growth(q.shift, q.noise))
            for _ in range(min(CHUNK, left)):
                left -= 1
                if self._pair(best):
                    self._confirm(best, night)
                    tonight.remove(best)
                    break
                if not best.is_worth_a_pair():
                    if best.log_pairs < best.log_before:
                        self._give_back(best)
                    break

    def _asked(self, number: int, found: Deviation, known: Question | None, night: int) -> Question:
        part = self.parts[number]
        place = part.places[night]
        since_good = found.since_good
        if known is not None and (known.shift > 0) == (found.shift > 0):
            since = found.odds_within(place - part.places[known.after])
            is_other = part.nights[place - found.recent + 1] > known.after
            is_again = night > known.after and (
                is_asked_again(known.log_belief, known.asked_odds, found.odds)
                or is_asked_anew(known.log_belief, found.odds, since)
            )
            if not is_other and not is_again:
                known.seen, known.odds = night, found.odds
                return known
            if not is_other:
                since_good = max(since_good, place - part.places[known.before] + FURTHER)
                since_good = min(place - part.start, since_good)
        if known is not None:
            self._give_back(known)
        made = Question(
            part=number,
            first=part.nights[place - found.recent + 1],
            before=part.nights[place - since_good],
            after=night,
            shift=found.shift,
            noise=found.noise,
            odds=found.odds,
            seen=night,
        )
        self.open[number] = made
        return made

    def _of_history(self, night: int, asked: set[int]) -> list[Question]:
        """Return the alarms that the history alone raises tonight, as questions."""
        found = []
        for alarm in self._alarms.get(night, ()):
            part = self.parts[alarm.series]
            first, is_up = part.nights[alarm.first_after], alarm.ratio > 1
            is_known = any(
                q.part == alarm.series
                and (q.shift > 0) == is_up
                and q.before - FORGOTTEN <= first <= q.after + FORGOTTEN
                for q, _ in self.confirmed
            )
            known = self.open.get(alarm.series)
            is_of_machine = alarm.machine_suspect or self._year.histories[alarm.series].is_canary
            if is_known or is_of_machine:
                continue
            if known is not None and (known.shift > 0) == is_up and first <= known.after:
                known.odds, known.seen = MOST_ODDS, night
                if alarm.series not in asked:
                    found.append(known)
                continue
            if known is not None:
                self._give_back(known)
            noise = 1.4826 * float(np.median(np.abs(np.diff(part.logs)))) / math.sqrt(2)
            question = Question(
                part=alarm.series,
                first=first,
                before=part.nights[alarm.first_after - 1],
                after=first,
                shift=math.log(alarm.ratio),
                noise=noise,
                odds=MOST_ODDS,
                seen=night,
            )
            if alarm.series not in asked:  # else in its place, from the next night on
                found.append(question)
            self.open[alarm.series] = question
        return found

    def _pair(self, question: Question) -> bool:
        """Run a pair of a question; return True when it is proven."""
        if not question.pairs:
            question.asked_odds = question.odds
            self.questions += 1
        if not question.alpha:
            question.alpha, self.pot = self.pot.spent(question.odds)
            question.log_before = question.log_pairs
        self.pairs += 1
        question.pairs.append(self._ratio(question))
        question.log_pairs = log_evidence(question.pairs, question.shift, question.noise)
        question.log_belief = log_belief(question.pairs, question.shift, question.noise)
        evidence = question.log_pairs - question.log_before
        return is_proven(question.pairs, question.shift, evidence, question.alpha)

    def _give_back(self, question: Question) -> None:
        """Put back what a question no longer needs of the allowed error."""
        if question.alpha:
            evidence = question.log_pairs - question.log_before
            self.pot = self.pot.returned(question.alpha, evidence)
            question.alpha = 0.0

    def _ratio(self, question: Question) -> float:
        year = self._year
        owner = year.owners[question.part]
        spread = year.spreads[question.part] * PAIR_NOISE / math.sqrt(2)
        noise = NOISES[owner % len(NOISES)]
        # Neighbouring trials of a memory would be alike, which makes pairs better: not assumed.
        if noise is outliers:
            both = np.log(outliers(self._generator, (2,), spread))
        else:
            both = spread * self._generator.standard_normal(2)
        effect = 0.0
        change = self._changes.get(owner)
        if change and question.before < change.night <= question.after:
            effect = math.log1p(change.size)
        return effect + float(both[1] - both[0])

    def _confirm(self, question: Question, night: int) -> None:
        self.confirmed.append((question, night))
        self.open.pop(question.part, None)
        part = self.parts[question.part]
        part.start = part.places[question.after]
        screen([part], part.start)


def score(year: Year, nights: int, share: float, seed: int) -> ScreenScore:
    """Run the nights of a year, and count what was confirmed against what was made."""
    begin = time.process_time()
    done = Nights(year, share, seed)
    done.run(nights)
    seconds = time.process_time() - begin
    left = {change.series: change for change in year.made}
    delays, delays_run, false = [], [], 0
    run = {night for part in done.parts for night in part.nights}
    for question, night in done.confirmed:
        owner = year.owners[question.part]
        change = left.get(owner)
        if (
            change
            and question.before < change.night <= question.after
            and (change.size > 0) == (question.shift > 0)
        ):
            delays.append(night - change.night + 1)
            delays_run.append(len(run.intersection(range(change.night, night + 1))))
            del left[owner]
        else:
            false += 1
    return ScreenScore(
        made=len(year.made),
        delays=tuple(delays),
        delays_run=tuple(delays_run),
        false=false,
        suspects=done.suspects,
        questions=done.questions,
        pairs=done.pairs,
        trials=done.trials,
        missed=tuple(left.values()),
        seconds=seconds,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=200, help="in the suite (200)")
    parser.add_argument("--nights", type=int, default=365, help="of a year (365)")
    parser.add_argument("--changes", type=int, default=20, help="that are made (20)")
    parser.add_argument("--years", type=int, default=10, help="drawn anew (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the first year (0)")
    parser.add_argument("--share", type=float, default=0.4, help="of the night for pairs (0.4)")
    parser.add_argument("--each", action="store_true", help="say what was missed")
    parser.add_argument("--new", action="store_true", help="without today's detector")
    parser.add_argument(
        "--on_disk",
        metavar="DIR",
        help="screen the first year as files, by the command",
    )
    parser.add_argument("--every", type=int, default=1, help="nights, with --on_disk (1)")
    given = parser.parse_args(arguments)
    if given.on_disk:
        from simulations.screen_disk import agreement_lines, screen_on_disk

        year = make(given.series, given.nights, given.changes, given.seed)
        found = screen_on_disk(
            year, given.nights, given.share, given.seed, Path(given.on_disk), given.every
        )
        sys.stdout.write("".join(f"- {line}\n" for line in agreement_lines(found)))
        return 0
    scores, old = [], []
    for seed in range(given.seed, given.seed + given.years):
        year = make(given.series, given.nights, given.changes, seed)
        scores.append(score(year, given.nights, given.share, seed))
        if not given.new:
            old.append(score_of_detect(year))
    head = (
        *("", "found", "recall", "false", "precision", "median nights", "90 % within"),
        *("within 4", "more trials", "CPU seconds a year"),
    )
    sys.stdout.write(f"| {' | '.join(head)} |\n{'|---' * len(head)}|\n")
    made = sum(s.made for s in scores)
    if old:
        delays = [delay for s in old for delay in s.delays]
        false, cpu = sum(s.false for s in old), float(np.mean([s.seconds for s in old]))
        sys.stdout.write(_row("history alone", made, delays, false, 0.0, cpu))
    delays = [delay for s in scores for delay in s.delays]
    more = 2 * sum(s.pairs for s in scores) / sum(s.trials for s in scores)
    false, cpu = sum(s.false for s in scores), float(np.mean([s.seconds for s in scores]))
    sys.stdout.write(_row("screened, then pairs", made, delays, false, more, cpu))
    suspects = sum(s.suspects for s in scores) / sum(s.trials for s in scores)
    asked = sum(s.questions for s in scores) / len(scores)
    sys.stdout.write(f"\nsuspects: {suspects:.1%} of the nights; questions a year: {asked:.0f}\n")
    of_run = [delay for s in scores for delay in s.delays_run]
    sys.stdout.write(
        f"of the found, {_within(delays):.1%} within 4 nights, "
        f"{_within(of_run):.1%} within 4 that the suite has run\n"
    )
    if given.each:
        for one in scores:
            for change in one.missed:
                sys.stdout.write(f"missed {change}, {NOISES[change.series % 4].__name__}\n")
    return 0


def _within(delays: Sequence[int], nights: int = 4) -> float:
    return sum(delay <= nights for delay in delays) / max(1, len(delays))


def _row(
    name: str, made: int, delays: Sequence[int], false: int, more: float, seconds: float
) -> str:
    cells = (
        name,
        f"{len(delays)} of {made}",
        f"{len(delays) / max(1, made):.1%}",
        str(false),
        f"{len(delays) / max(1, len(delays) + false):.1%}",
        f"{np.median(delays) if delays else float('nan'):.0f}",
        f"{np.quantile(delays, 0.9, method='higher') if delays else float('nan'):.0f}",
        f"{sum(delay <= 4 for delay in delays) / max(1, made):.1%}",  # of all that were made
        f"{more:.1%}",
        f"{seconds:.1f}",
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    raise SystemExit(main())
