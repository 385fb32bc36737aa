"""Screen the last observations of a series, and judge the pairs that are run for the suspects.

Screening casts a wide net: the last 1 to 28 observations against those before them. For each place
of a step it weighs how likely the observations are with a step of a common size against how likely
they are without one. These odds only order the questions, and say how much of the allowed error
each gets; no alarm rests on them. What the pairs say of the same question, as a likelihood, is
multiplied in: that one belief says when a question is not worth another pair.

The alarm is that of the pairs. The order in a pair is drawn at random, so when both sides are equal
the sign of its logarithmic ratio is a fair coin, whatever the noise: skewed, with outliers, with a
memory. Each pair multiplies the evidence by a bet on that coin whose mean is 1 then, so that the
product, an e-process, ever exceeds 1/alpha with a probability of alpha at most, looked at after
every pair and continued for as many nights as one likes (Ville's inequality; Ramdas, Grünwald, Vovk
and Shafer, Statistical Science 38, 2023). Each question spends a part of the false alarms that a
year allows (alpha spending: Lan and DeMets, Biometrika 70, 1983), so that the mean number of false
alarms in a year is bounded, however many questions are asked and however they depend on each other.

simulations/screen_year.py measures both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perfrun.analysis.stats import Floats

MOST_RECENT = 28  # observations that may be the beginning of a new level
MOST_BEFORE = 120  # that tell the noise, and how often the series did the same
FEWEST_BEFORE = 10
LEVEL_BEFORE = 60  # the last of them, which tell the level
FEWEST_IN_COMMON = 8  # series, for a factor that a night has in common
FALSE_ALARMS_A_YEAR = 0.1  # mean number over the whole suite, at most
MIN_EFFECT = math.log1p(0.01)  # a smaller difference is not relevant
MOST_ODDS = 20.0  # that nights alone can give; pairs have to do the rest
SUSPECT_ODDS = 0.002  # of the last observations of a series
NEAR = 7  # nights, the age of a step of which further nights are not waited for
LEAST_NOISE = 5e-4  # a share: clocks and layouts do not repeat better
# With a smaller chance no further pair is worth its time tonight, by the age of the step in nights.
# The second night will tell much more of a new one at no cost, and that of an old one as well.
_LEAST_CHANCES = ((1, 0.015), (2, 0.005), (4, 0.0042), (NEAR, 0.005))
_LEAST_CHANCE_LATE = 0.02
_TYPICAL_GROWTH, _BY_GROWTH = 0.35, 0.5  # for which these hold, and the power with which they fall
_ENOUGH_CHANCE = 0.2  # for any
_ASKED_AGAIN = 3.0  # times the odds of a question that its pairs have refuted
_ASKED_ANEW = 0.01  # odds of the nights since such a question, by themselves
# The odds of nights are off by this power of their ratio to the typical ones, as pairs have shown.
_TYPICAL_ODDS, _TEMPER = 0.01, 0.6
_CHANGES_A_NIGHT = 0.1 / 365  # of a series: one in ten years
_STEPS = np.log1p([0.015, 0.02, 0.03, 0.045, 0.07, 0.10, 0.15, 0.25])  # common sizes
# Numbers of last observations, and of the nights for which each stands, for each part that is held
# back from the observations before: a step in it would be part of their level.
_WINDOWS = {
    NEAR: ((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)),
    MOST_RECENT: ((10, 3), (14, 4), (20, 6), (28, 8)),
}
_ALIKE = 0.75  # of a shift: one as large counts as the same that happened before
_UNSEEN = 0.1  # as many as this may have been that far out before the first one was kept
_CLEAR = 5.0  # standard deviations of a shift whose place is clear
_MARGIN = 4  # nights before an unclear place
_CLIP = 4.0  # standard deviations that one of several observations may have
_TAIL = 6.0  # degrees of freedom of the distribution that tells how rare a deviation is
_FREEDOM = 0.6  # degrees of freedom for each observation before
_MOST_MEMORY, _SURELY_MEMORY = 0.7, 3.0
_PAIR_NOISE = 1.5  # of a pair's ratio, over that of a night
_SHARES = (0.5, 1.0)  # of the shift that the nights show, which the pairs may have
_SPREADS = (0.6, 1.2)  # times the noise that a pair is thought to have
_LIKELY_SHARES = (0.5, 0.75, 1.0)  # the same for the belief
_LIKELY_SPREADS = (0.5, 0.7, 1.0, 1.4, 2.0)
_WAITING_DAYS = 30.0  # of allowed error that can be saved up
_FIRST_DAYS = 14.0  # of it that a new suite begins with
_MOST_ALLOWED = FALSE_ALARMS_A_YEAR * _WAITING_DAYS / 365
_SHARE_OF_POT, _SHARE_BY_CHANCE = 0.05, 0.35


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """The last observations of a series that lie furthest out."""

    recent: int  # number of these observations, 1 to 28
    since_good: int  # observations after the last one that is surely at the level before
    shift: float  # of their logarithms
    noise: float  # standard deviation of one observation, as a logarithm
    p_value: float  # by a heavy tail, and by how often the series did the same before
    odds: float  # that the level changed, before any pair is run
    odds_by_count: tuple[tuple[int, float], ...] = ()  # parts of these, by last observations

    def odds_within(self, count: int) -> float:
        """Return the odds that the level changed within so many last observations."""
        return min(self.odds, sum(odds for recent, odds in self.odds_by_count if recent <= count))

    @property
    def is_suspect(self) -> bool:
        return self.odds >= SUSPECT_ODDS and abs(self.shift) >= MIN_EFFECT


def common_factor(deviations: Sequence[float] | Floats) -> float:
    """Return what a night did to all series alike, by their deviations from their levels."""
    if len(deviations) < FEWEST_IN_COMMON:
        return 0.0
    return float(np.median(deviations))


def levels_before(logs: Floats) -> Floats:
    """Return the level before each observation, from the eleventh on."""
    young = [
        float(np.median(logs[:at])) for at in range(FEWEST_BEFORE, min(LEVEL_BEFORE, len(logs)))
    ]
    if len(logs) <= LEVEL_BEFORE:
        return np.array(young)
    rows = np.lib.stride_tricks.sliding_window_view(logs[:-1], LEVEL_BEFORE)
    return np.concatenate((young, np.median(rows, axis=1)))


def last_deviation(logs: Sequence[float] | Floats) -> Deviation | None:
    """Return the last observations if they are far out; None also for a series too short."""
    found = deviations(np.asarray(logs, dtype=np.float64)[-(MOST_BEFORE + MOST_RECENT) :][None, :])
    return found[0]


def deviations(rows: Floats) -> list[Deviation | None]:
    """Return the same for several series of one length, one a row."""
    room = rows.shape[1] - FEWEST_BEFORE
    if room < 1:
        return [None] * len(rows)
    scans = [_Scan(rows, min(held, room)) for held in _WINDOWS if held == NEAR or room > NEAR]
    looks = [
        (scan, count, weight)
        for scan, windows in zip(scans, _WINDOWS.values(), strict=False)
        for count, weight in windows
        if count <= room
    ]
    factors = np.empty((len(looks), len(rows)))
    p_values = np.empty_like(factors)
    for at, (scan, count, weight) in enumerate(looks):
        factor, p_values[at] = scan.look(count)
        factors[at] = weight * factor
    odds = np.minimum(MOST_ODDS, factors.sum(axis=0) * _CHANGES_A_NIGHT)
    best = np.argmax(factors, axis=0)
    found: list[Deviation | None] = [None] * len(rows)
    for number in np.flatnonzero(odds >= SUSPECT_ODDS).tolist():
        scan, count, _ = looks[best[number]]
        off, noise = rows[number] - scan.level[number], float(scan.noise[number, 0])
        recent = _recent(off, count, min(MOST_RECENT, room), noise)
        shift = float(np.median(off[-recent:]))
        since_good = _since_good(off, recent, noise)
        if abs(shift) < _CLEAR * noise:  # the noise hides the place
            likely = np.flatnonzero(factors[:, number] > 0.1 * factors[best[number], number])
            since_good = max(since_good, looks[likely[-1]][1] + _MARGIN)
        found[number] = Deviation(
            recent=recent,
            since_good=min(since_good, len(off) - 1),
            shift=shift,
            noise=noise,
            p_value=float(p_values[best[number], number]),
            odds=float(odds[number]),
            odds_by_count=tuple(
                (count, float(factors[at, number]) * _CHANGES_A_NIGHT)
                for at, (_, count, _) in enumerate(looks)
            ),
        )
    return found


class _Scan:
    """Several series of one length, whose last observations are held against those before."""

    def __init__(self, rows: Floats, held: int) -> None:
        base = rows[:, : rows.shape[1] - held][:, -MOST_BEFORE:]
        self.level = np.median(base[:, -LEVEL_BEFORE:], axis=1, keepdims=True)
        self._past, self._last = base - self.level, rows[:, -1:] - self.level
        self.noise = _spread(self._past)
        self._limit = _CLIP * self.noise
        clipped = np.clip(self._past, -self._limit, self._limit)
        self._sums = np.cumsum(np.pad(clipped, ((0, 0), (1, 0))), axis=1)
        self._held = np.clip(rows[:, -held:] - self.level, -self._limit, self._limit)
        self._mean = clipped[:, -LEVEL_BEFORE:].mean(axis=1, keepdims=True)
        off = clipped - self._mean
        squares = np.maximum((off**2).sum(axis=1, keepdims=True), LEAST_NOISE**2)
        self._variance = np.maximum(squares / (base.shape[1] - 1), LEAST_NOISE**2)
        memory = (off[:, 1:] * off[:, :-1]).sum(axis=1, keepdims=True) / squares
        # A little more than its estimate: too little would make suspects of most of its nights.
        self._memory = np.clip(memory + _SURELY_MEMORY / base.shape[1], 0.0, _MOST_MEMORY)

    def look(self, count: int) -> tuple[Floats, Floats]:
        """Return the evidence for a step so many observations ago, and its p-value."""
        if count == 1:  # its whole size counts: one that is far out is the usual first sign
            now = self._last
            as_far = self._as_far(self._past, now, 1)
            tail = 2 * special.stdtr(_TAIL, -np.abs(now / self.noise)[:, 0])
            return 1 / (tail + as_far), tail + as_far
        now = self._held[:, -count:].mean(axis=1, keepdims=True)
        past = (self._sums[:, count:] - self._sums[:, :-count]) / count
        as_far = self._as_far(past, now, count)
        size = self._past.shape[1]
        level = min(size, LEVEL_BEFORE)
        width = np.sqrt(
            self._variance
            * (_inflation(self._memory, count) / count + _inflation(self._memory, level) / level)
        )
        z = np.abs(now - self._mean) / width
        steps = np.minimum(_STEPS[None, :], self._limit) / width
        freedom = max(5.0, _FREEDOM * size)
        logs = np.log1p(z**2 / freedom) - np.log1p((z - steps) ** 2 / freedom)
        factor = np.exp((freedom + 1) / 2 * logs).mean(axis=1) / 2  # half of the steps go up
        tail = 2 * special.stdtr(freedom, -z[:, 0])
        return 1 / (1 / factor + as_far), tail + as_far

    def _as_far(self, past: Floats, now: Floats, count: int) -> Floats:
        """Return how often as many observations lay as far out before."""
        side = np.sign(now)
        same = np.sum(past * side >= _ALIKE * now * side, axis=1)
        return np.asarray((same + _UNSEEN / count**2) / (past.shape[1] + 1), dtype=np.float64)


def _inflation(memory: Floats, count: int) -> Floats:
    """Return how much more a mean varies with this memory (of an AR(1)) than without one."""
    ends = 2 * memory * (1 - memory**count) / (count * (1 - memory) ** 2)
    return np.asarray((1 + memory) / (1 - memory) - ends, dtype=np.float64)


def _recent(off: Floats, count: int, most: int, noise: float) -> int:
    """Return how many of the last observations are at the new level, most likely."""
    limit, middle = _CLIP * noise, float(np.median(off[-count:]))
    towards = np.clip(off[::-1][:most] * np.sign(middle), -limit, limit)
    return 1 + int(np.argmax(np.cumsum(towards - min(abs(middle), limit) / 2)))


def _since_good(off: Floats, recent: int, noise: float) -> int:
    """Return how many of the last observations may be at the new level.

    Those before the recent ones that lie beyond half of the shift may be, too; where the noise
    hides the place, all of the last `NEAR` may.
    """
    shift = float(np.median(off[-recent:]))
    side, most = math.copysign(1.0, shift), min(3 * NEAR, len(off) - 1)
    count = recent
    while count < most and off[-count - 1] * side > abs(shift) / 2:
        count += 1
    hidden = abs(shift) < _CLEAR * noise
    return min(most, max(count, MOST_RECENT)) if hidden else count


def _spread(values: Floats) -> Floats:
    """Return the robust standard deviation of each row about 0."""
    middle = np.median(np.abs(values), axis=1, keepdims=True)
    return np.asarray(np.maximum(1.4826 * middle, LEAST_NOISE), dtype=np.float64)


def log_evidence(log_ratios: Sequence[float] | Floats, shift: float, noise: float) -> float:
    """Return the logarithm of the evidence of the pairs for a change in the direction of `shift`.

    The bets are on a shift of a part of the one that the nights show, in noise with heavy tails;
    a mixture over some parts and some widths of the noise.
    """
    x = np.asarray(log_ratios, dtype=np.float64) * math.copysign(1.0, shift)
    if not len(x):
        return 0.0
    sizes = np.maximum(abs(shift) * np.array(_SHARES), MIN_EFFECT)[:, None, None]
    widths = (max(noise, LEAST_NOISE) * _PAIR_NOISE * np.array(_SPREADS))[None, :, None]
    one, other = _log_density((x - sizes) / widths), _log_density((-x - sizes) / widths)
    logs = math.log(2) + one - np.logaddexp(one, other)  # given its size, of the sign
    total = logs.sum(axis=2).ravel()
    return float(special.logsumexp(total) - math.log(len(total)))


def log_belief(log_ratios: Sequence[float] | Floats, shift: float, noise: float) -> float:
    """Return the logarithm of how likely the pairs are with the change, over without it.

    It takes the sizes for what they seem to be, so one or two pairs refute a large shift. Where
    the signs speak more against the change than the sizes, they count. Unlike `log_evidence` it
    bounds no error: it says which question is worth a pair.
    """
    x = np.asarray(log_ratios, dtype=np.float64) * math.copysign(1.0, shift)
    if not len(x):
        return 0.0
    sizes = np.maximum(abs(shift) * np.array(_LIKELY_SHARES), MIN_EFFECT)[:, None, None]
    widths = (max(noise, LEAST_NOISE) * _PAIR_NOISE * np.array(_LIKELY_SPREADS))[None, :, None]
    scale = len(x) * np.log(widths[..., 0])
    changed = _log_density((x - sizes) / widths).sum(axis=2) - scale
    equal = _log_density(x / widths).sum(axis=2) - scale
    many = math.log(len(_LIKELY_SHARES))
    likely = float(special.logsumexp(changed) - many - special.logsumexp(equal))
    return min(likely, log_evidence(log_ratios, shift, noise))


def _log_density(z: Floats) -> NDArray[np.float64]:
    """Return the logarithm of Student's density with 3 degrees of freedom, without its constant."""
    return np.asarray(-2.0 * np.log1p(z * z / 3.0), dtype=np.float64)


def log_growth(shift: float, noise: float) -> float:
    """Return by how much a pair adds to the logarithm of the evidence, if the shift is there."""
    ratio = (shift / (max(noise, LEAST_NOISE) * _PAIR_NOISE)) ** 2
    return math.log(2) * ratio / (ratio + 1.4)


def chance(odds: float, log_belief: float) -> float:
    """Return the probability of a change: the evidence of nights and pairs as one belief.

    The odds of nights spread too widely, as nights are less independent than a model has them: of
    high odds fewer are true than they say, and of low odds more.
    """
    tempered = _TEMPER * math.log(odds / _TYPICAL_ODDS) + math.log(_TYPICAL_ODDS)
    return float(special.expit(tempered + log_belief))


def is_worth_a_pair(chance: float, age: int, growth: float) -> bool:
    """Return True when a change of this probability, so many nights old, gets a pair tonight.

    `growth` is what a pair adds to the evidence: less is worth a pair where few can decide.
    """
    least = next((least for below, least in _LEAST_CHANCES if age < below), _LEAST_CHANCE_LATE)
    by_growth: float = (_TYPICAL_GROWTH / growth) ** _BY_GROWTH
    return chance >= min(_ENOUGH_CHANCE, least * by_growth)


def is_asked_again(log_belief: float, asked_odds: float, odds: float) -> bool:
    """Return True when nights speak for a change much more than when its pairs refuted it."""
    return log_belief < 0 and odds > _ASKED_AGAIN * asked_odds


def is_asked_anew(log_belief: float, odds: float, odds_since: float) -> bool:
    """Return True when pairs have refuted a question, and the nights since then raise another one.

    `odds_since` are the odds that the level changed after the new side of the refuted question.
    """
    refuted = odds * math.exp(min(0.0, log_belief))
    return log_belief < 0 and odds_since >= max(_ASKED_ANEW, refuted)


def is_proven(log_ratios: Sequence[float], shift: float, evidence: float, alpha: float) -> bool:
    """Return True when the pairs prove a relevant change in the direction of the shift.

    `evidence` is the logarithm of that since the question got its `alpha`.
    """
    if evidence < -math.log(alpha):
        return False
    return float(np.median(log_ratios)) * math.copysign(1.0, shift) >= MIN_EFFECT


@dataclass(frozen=True, kw_only=True)
class Pot:
    """The allowed false alarms that are saved up: a share of one, as a mean number."""

    allowed: float = FALSE_ALARMS_A_YEAR * _FIRST_DAYS / 365

    def after(self, days: float) -> Pot:
        """Return the pot so many days later."""
        grown = self.allowed + FALSE_ALARMS_A_YEAR * max(0.0, days) / 365
        return Pot(allowed=min(_MOST_ALLOWED, grown))

    def spent(self, odds: float) -> tuple[float, Pot]:
        """Return the error of a question of these odds, and what is left for the others."""
        alpha = self.allowed * (_SHARE_OF_POT + _SHARE_BY_CHANCE * odds / (1 + odds))
        return alpha, Pot(allowed=self.allowed - alpha)

    def returned(self, alpha: float, evidence: float) -> Pot:
        """Return the pot with what a question that is given up no longer needs.

        With the evidence E (`evidence` is its logarithm) it would have become an alarm with a
        probability of alpha E at most, by Ville's inequality from here on: this much is free again.
        """
        freed = alpha * math.exp(min(0.0, evidence))
        return Pot(allowed=max(self.allowed, min(_MOST_ALLOWED, self.allowed + freed)))
