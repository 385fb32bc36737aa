"""Screen the last observations of a series, and judge the pairs that are run for the suspects.

Screening casts a wide net: the last 1 to 7 observations against the 60 before them. Its p-value
only orders the questions, and says how much of the allowed error each gets; no alarm rests on it.

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

MOST_RECENT = 7  # observations that may be the beginning of a new level
MOST_BEFORE = 60
FEWEST_BEFORE = 10
SUSPECT_P = 0.012  # of the last observations of a series: about one in fifty is a suspect
FEWEST_IN_COMMON = 8  # series, for a factor that a night has in common
FALSE_ALARMS_A_YEAR = 0.1  # mean number over the whole suite, at most
MIN_EFFECT = math.log1p(0.01)  # a smaller difference is not relevant
MOST_ODDS = 20.0  # that nights alone can give; pairs have to do the rest
LEAST_CHANCE = 0.03  # with less, no further pair is worth its time tonight
_CHANGES_A_NIGHT = 0.1 / 365  # of a series: one in ten years
LEAST_NOISE = 5e-4  # a share: clocks and layouts do not repeat better
_UNSEEN = 0.15  # as many as this may have been that far out before the first one was kept
_CLEAR = 5.0  # standard deviations of a shift whose place is clear
_CLIP = 4.0  # standard deviations that one of several observations may have
_TAIL = 6.0  # degrees of freedom of the distribution that tells how rare a deviation is
_PAIR_NOISE = 1.5  # of a pair's ratio, over that of a night
_SHARES = (0.35, 0.6, 1.0)  # of the shift that the nights show, which the pairs may have
_SPREADS = (0.5, 1.0, 2.0)  # times the noise that a pair is thought to have
_WAITING_DAYS = 30.0  # of allowed error that can be saved up
_FIRST_DAYS = 14.0  # of it that a new suite begins with
_SHARE_OF_POT, _SHARE_BY_CHANCE = 0.05, 0.35


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """The last observations of a series that lie furthest out."""

    recent: int  # number of these observations, 1 to 7
    since_good: int  # observations after the last one that is surely at the level before
    shift: float  # of their logarithms
    noise: float  # standard deviation of one observation, as a logarithm
    p_value: float  # by a heavy tail, and by how often the series did the same before

    @property
    def is_suspect(self) -> bool:
        return self.p_value <= SUSPECT_P and abs(self.shift) >= MIN_EFFECT

    @property
    def odds(self) -> float:
        """The odds that the level changed, before any pair is run."""
        return min(MOST_ODDS, _CHANGES_A_NIGHT / self.p_value)


def common_factor(deviations: Sequence[float] | Floats) -> float:
    """Return what a night did to all series alike, by their deviations from their levels."""
    if len(deviations) < FEWEST_IN_COMMON:
        return 0.0
    return float(np.median(deviations))


def last_deviation(logs: Sequence[float] | Floats) -> Deviation | None:
    """Return the last observations if they are far out; None also for a series too short."""
    found = deviations(np.asarray(logs, dtype=np.float64)[-(MOST_BEFORE + MOST_RECENT) :][None, :])
    return found[0]


def deviations(rows: Floats) -> list[Deviation | None]:
    """Return the same for several series of one length, one a row."""
    most = min(MOST_RECENT, rows.shape[1] - FEWEST_BEFORE)
    if most < 1:
        return [None] * len(rows)
    base = rows[:, : rows.shape[1] - most][:, -MOST_BEFORE:]
    level = np.median(base, axis=1, keepdims=True)
    noise = _spread(base - level)
    limit = _CLIP * noise
    before = np.clip(base - level, -limit, limit)
    after = np.clip(rows[:, -most:] - level, -limit, limit)
    best = np.full(len(rows), np.inf)
    recent = np.ones(len(rows), dtype=np.int64)
    for count in range(1, most + 1):
        if count == 1:  # its whole size counts: one that is far out is the usual first sign
            past, now = base - level, rows[:, -1:] - level
        else:
            sums = np.cumsum(np.pad(before, ((0, 0), (1, 0))), axis=1)
            past = (sums[:, count:] - sums[:, :-count]) / count
            now = after[:, -count:].mean(axis=1, keepdims=True)
        scale = np.maximum(noise / math.sqrt(count), _spread(past))
        tail = 2 * special.stdtr(_TAIL, -np.abs(now / scale)[:, 0])
        side = np.sign(now)
        as_far = (np.sum(past * side >= now * side, axis=1) + _UNSEEN / count**2) / (
            past.shape[1] + 1
        )
        p_values = tail + as_far
        is_better = p_values < best
        best = np.where(is_better, p_values, best)
        recent = np.where(is_better, count, recent)
    rare = np.flatnonzero(best <= SUSPECT_P).tolist()
    found: list[Deviation | None] = [None] * len(rows)
    for number in rare:
        off, width, count = rows[number] - level[number], float(noise[number, 0]), recent[number]
        middle = float(np.median(off[-count:]))
        while count > 1 and off[-count] * np.sign(middle) < abs(middle) / 2:
            count -= 1  # it lies nearer to the level before
        found[number] = Deviation(
            recent=int(count),
            since_good=_since_good(off, int(count), width),
            shift=float(np.median(off[-count:])),
            noise=width,
            p_value=float(best[number]),
        )
    return found


def _since_good(off: Floats, recent: int, noise: float) -> int:
    """Return how many of the last observations may be at the new level.

    Those before the recent ones that lie beyond half of the shift may be, too; where the noise
    hides the place, all of the last `MOST_RECENT` may.
    """
    shift = float(np.median(off[-recent:]))
    side, most = math.copysign(1.0, shift), min(3 * MOST_RECENT, len(off) - 1)
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


def _log_density(z: Floats) -> NDArray[np.float64]:
    """Return the logarithm of Student's density with 3 degrees of freedom, without its constant."""
    return np.asarray(-2.0 * np.log1p(z * z / 3.0), dtype=np.float64)


def log_growth(shift: float, noise: float) -> float:
    """Return by how much a pair adds to the logarithm of the evidence, if the shift is there."""
    ratio = (shift / (max(noise, LEAST_NOISE) * _PAIR_NOISE)) ** 2
    return math.log(2) * ratio / (ratio + 1.4)


def chance(odds: float, log_pairs: float) -> float:
    """Return the probability of a change: the evidence of nights and pairs as one belief."""
    return float(special.expit(math.log(odds) + log_pairs))


def is_proven(log_ratios: Sequence[float], shift: float, log_pairs: float, alpha: float) -> bool:
    """Return True when the pairs prove a relevant change in the direction of the shift."""
    if log_pairs < -math.log(alpha):
        return False
    return float(np.median(log_ratios)) * math.copysign(1.0, shift) >= MIN_EFFECT


@dataclass(frozen=True, kw_only=True)
class Pot:
    """The allowed false alarms that are saved up: a share of one, as a mean number."""

    allowed: float = FALSE_ALARMS_A_YEAR * _FIRST_DAYS / 365

    def after(self, days: float) -> Pot:
        """Return the pot so many days later."""
        most = FALSE_ALARMS_A_YEAR * _WAITING_DAYS / 365
        grown = self.allowed + FALSE_ALARMS_A_YEAR * max(0.0, days) / 365
        return Pot(allowed=min(most, grown))

    def spent(self, odds: float) -> tuple[float, Pot]:
        """Return the error of a question of these odds, and what is left for the others."""
        alpha = self.allowed * (_SHARE_OF_POT + _SHARE_BY_CHANCE * odds / (1 + odds))
        return alpha, Pot(allowed=self.allowed - alpha)
