"""Noise as trials have it: series of relative times about 1, for tests of statistics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

Floats = NDArray[np.float64]
SPREAD = 0.02


def _gaussian(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return 1 + SPREAD * generator.standard_normal(shape)


def _log_normal(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.exp(SPREAD * generator.standard_normal(shape))


def _outliers(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return _gaussian(generator, shape) * np.where(generator.random(shape) < 0.05, 1.15, 1)


def _skewed(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """A floor, and above it what interrupts: the common shape of times."""
    return 1 + SPREAD * (np.exp(0.8 * generator.standard_normal(shape)) - 1)


def _two_modes(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    narrow = 1 + 0.3 * SPREAD * generator.standard_normal(shape)
    return narrow * np.where(generator.random(shape) < 0.35, 1 + 2 * SPREAD, 1)


NOISES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Floats]] = {
    "gaussian": _gaussian,
    "log-normal": _log_normal,
    "5 % outliers": _outliers,
    "skewed": _skewed,
    "two modes": _two_modes,
}


def true_median(noise: str) -> float:
    """The median that such series have in the long run."""
    mixtures = {"5 % outliers": (0.05, 1.15, SPREAD), "two modes": (0.35, 1.04, 0.3 * SPREAD)}
    if noise not in mixtures:
        return 1.0
    share, factor, spread = mixtures[noise]

    def excess(at: float) -> float:
        usual, other = stats.norm.cdf([(at - 1) / spread, (at / factor - 1) / spread])
        return float((1 - share) * usual + share * other - 0.5)

    return float(optimize.brentq(excess, 0.9, 1.2))
