"""Noise like that of trials: series of relative times about 1, for simulations and tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, ...], float], Floats]


def _gaussian(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    return 1 + spread * generator.standard_normal(shape)


def _log_normal(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    return np.exp(spread * generator.standard_normal(shape))


def _outliers(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    """Draw noise of which five in a hundred trials take 15 % longer."""
    slowed = np.where(generator.random(shape) < 0.05, 1.15, 1.0)
    return _gaussian(generator, shape, spread) * slowed


def _skewed(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    """Draw a floor, and above it what interrupts: the common shape of times."""
    return 1 + spread * (np.exp(0.8 * generator.standard_normal(shape)) - 1)


def _two_modes(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    """Draw noise of which a third falls into a slower mode, as with the layout of memory."""
    slower = np.where(generator.random(shape) < 0.35, 1 + 2 * spread, 1.0)
    return _gaussian(generator, shape, 0.3 * spread) * slower


def drifting(generator: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    """Draw Gaussian noise in which each trial resembles the one before: AR(1), coefficient 0.5."""
    innovations = generator.standard_normal(shape) * np.sqrt(1 - 0.5**2)
    values = innovations.copy()
    values[..., 0] = generator.standard_normal(shape[:-1])
    for at in range(1, shape[-1]):
        values[..., at] += 0.5 * values[..., at - 1]
    series: Floats = 1 + spread * values
    return series


NOISES: dict[str, Noise] = {
    "gaussian": _gaussian,
    "log-normal": _log_normal,
    "5 % outliers": _outliers,
    "skewed": _skewed,
    "two modes": _two_modes,
}


def true_median(noise: str, spread: float) -> float:
    """Return the median that such series have in the long run."""
    mixtures = {
        "5 % outliers": (0.05, 1.15, spread),
        "two modes": (0.35, 1 + 2 * spread, 0.3 * spread),
    }
    if noise not in mixtures:
        return 1.0
    share, factor, width = mixtures[noise]

    def excess(at: float) -> float:
        usual = stats.norm.cdf((at - 1) / width)
        other = stats.norm.cdf((at / factor - 1) / width)
        return float((1 - share) * usual + share * other - 0.5)

    return float(optimize.brentq(excess, 0.5, 2.0))
