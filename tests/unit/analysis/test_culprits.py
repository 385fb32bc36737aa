"""The probability of each revision to be the culprit, from made-up figures."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from perfrun.analysis import culprits
from perfrun.analysis.culprits import RevisionPair, posterior_of
from perfrun.analysis.pairs import walsh_averages

EFFECT = 0.05


def pairs_of(a: int, b: int, numbers: object) -> list[RevisionPair]:
    return [RevisionPair(a=a, b=b, log_ratio=float(number)) for number in np.atleast_1d(numbers)]


def hodges_lehmann(numbers: list[float]) -> float:
    return float(np.median(walsh_averages(np.array(numbers))))


def drawn(count: int, spread: float, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, spread, count)


def test_pairs_that_show_the_change_rule_out_the_revisions_after_them() -> None:
    pairs = pairs_of(0, 4, EFFECT + drawn(10, 0.005)) + pairs_of(0, 2, [EFFECT])
    probabilities = posterior_of([0, 1, 2, 3, 4], pairs).probabilities
    assert probabilities[0] == pytest.approx(probabilities[1])
    assert probabilities[2] == pytest.approx(probabilities[3])
    assert probabilities[:2].sum() > 0.95
    pairs[-1] = RevisionPair(a=0, b=2, log_ratio=0.0)
    assert posterior_of([0, 1, 2, 3, 4], pairs).probabilities[2:].sum() > 0.95


def test_more_pairs_make_it_surer_and_an_outlier_revision_never_quite() -> None:
    pairs = pairs_of(0, 4, EFFECT + drawn(40, 0.05))
    sure = [
        posterior_of([0, 2, 4], [*pairs, *pairs_of(0, 2, np.full(count, EFFECT))]).probabilities[0]
        for count in (1, 4, 16, 400)
    ]
    assert sure == sorted(sure)
    assert sure[0] < 0.9
    assert 0.99 < sure[3] < 0.9995


@pytest.mark.parametrize(("outliers", "degrees"), [(0, (6, 20)), (20, (2, 3))])
def test_the_noise_is_that_of_most_pairs_and_its_tails_are_seen(
    outliers: int, degrees: tuple[int, int]
) -> None:
    numbers = drawn(200, 0.05)
    numbers[:outliers] += 0.6
    noise = posterior_of([0, 9], pairs_of(0, 9, EFFECT + numbers)).noise
    assert 0.03 < noise.scale < 0.055
    assert degrees[0] <= noise.degrees <= degrees[1]


def test_an_outlier_counts_less_than_a_figure_that_is_as_expected() -> None:
    numbers = drawn(40, 0.01)
    numbers[::10] += 0.4
    pairs = pairs_of(0, 2, EFFECT + numbers)
    far, usual = (
        posterior_of([0, 1, 2], [*pairs, *pairs_of(0, 1, [x])]).probabilities[0]
        for x in (0.6, 0.05)
    )
    assert 0.5 < far < 0.8 < usual


def test_figures_that_repeat_exactly_are_no_reason_to_fail() -> None:
    pairs = pairs_of(0, 2, np.full(8, EFFECT)) + pairs_of(0, 1, [0.0])
    probabilities = posterior_of([0, 1, 2], pairs).probabilities
    assert np.isfinite(probabilities).all()
    assert probabilities[1] > 0.95


def test_the_posterior_is_that_of_the_whole_model_written_out() -> None:
    # Every candidate, size of the deviations and outlier by itself, as dense matrices.
    random = np.random.default_rng(4)
    ends = [(0, 6)] * 12 + [(0, 3)] * 3 + [(2, 3), (2, 5), (2, 5), (3, 6)]
    pairs = [
        RevisionPair(a=a, b=b, log_ratio=random.normal(EFFECT * (a < 4 <= b), 0.03))
        for a, b in ends
    ]
    posterior = posterior_of([0, 1, 2, 3, 5, 6], pairs)
    effect = hodges_lehmann([pair.log_ratio for pair in pairs[:12]])
    law = stats.t(posterior.noise.degrees, scale=posterior.noise.scale)
    groups = sorted(set(ends))
    figures, variances = [], []
    for group in groups:
        numbers = np.array([pair.log_ratio for pair in pairs if (pair.a, pair.b) == group])
        # A normal distribution of this precision distinguishes the effect from 0 as Student's t.
        ratios = law.logpdf(numbers - effect) - law.logpdf(numbers)
        precisions = 2 * ratios / (np.square(numbers) - np.square(numbers - effect))
        figures.append(float(precisions @ numbers / precisions.sum()))
        variances.append(1 / precisions.sum())
    evidence = np.zeros(6)
    for culprit in range(1, 7):
        inside = np.array([float(a < culprit <= b) for a, b in groups])
        for share, prior in zip(culprits._BETWEEN, np.exp(culprits._BETWEEN_PRIOR), strict=True):
            for outlier in (None, 2, 3, 5):  # good and bad are not
                own = np.full(7, (share * effect) ** 2)
                if outlier is not None:
                    own[outlier] += (culprits._OUTLIER_BY * effect) ** 2
                members = np.array([[(i == b) - (i == a) for i in range(7)] for a, b in groups])
                covariance = np.diag(variances) + members * own @ members.T
                covariance += np.outer(inside, inside) * (culprits._EFFECT_SPREAD * effect) ** 2
                mean = inside * culprits._EFFECT * effect
                density = stats.multivariate_normal(mean, covariance).pdf(figures)
                rare = 1 - culprits._OUTLIER if outlier is None else culprits._OUTLIER
                evidence[culprit - 1] += prior * rare * density
    evidence /= evidence.sum()
    apart = [evidence[0], evidence[1], evidence[2], evidence[3] + evidence[4], evidence[5]]
    assert posterior.probabilities == pytest.approx(apart, rel=1e-6)


def test_a_pair_that_was_run_often_has_less_information_the_less_noise_there_is() -> None:
    information = {}
    for spread in (0.001, 0.05):
        pairs = pairs_of(0, 4, EFFECT + drawn(40, spread))
        new = posterior_of([0, 1, 2, 3, 4], pairs).information([0, 2, 4])[0, 1]
        often = [*pairs, *pairs_of(0, 2, np.tile([0.0, EFFECT], 4))]  # which leave it open
        information[spread] = (
            posterior_of([0, 1, 2, 3, 4], often).information([0, 2, 4])[0, 1] / new
        )
    assert information[0.001] < 0.05
    assert 0.3 < information[0.05] < 1.0


def test_a_pair_within_what_is_ruled_out_has_no_information() -> None:
    pairs = pairs_of(0, 4, EFFECT + drawn(40, 0.01)) + pairs_of(0, 2, EFFECT + drawn(9, 0.01))
    information = posterior_of([0, 1, 2, 3, 4], pairs).information([0, 1, 2, 3, 4])
    assert np.array_equal(information, np.triu(information, 1))
    assert np.unravel_index(np.argmax(information), information.shape) in [
        (0, 1),
        (1, 2),
        (1, 3),
        (1, 4),
    ]
    assert information[2, 3] < 0.1 * information.max()


def test_how_much_revisions_differ_without_a_cause_is_seen() -> None:
    random, seen = np.random.default_rng(2), {}
    for between in (0.001, 0.012):
        own = random.normal(0, between, 12)
        own[8:] += EFFECT
        pairs = [
            RevisionPair(a=0, b=b, log_ratio=own[b] - own[0] + noise)
            for b in range(1, 12)
            for noise in random.normal(0, 0.004, 6)
        ]
        posterior = posterior_of(range(12), pairs)
        seen[between] = posterior.between
        assert np.argmax(posterior.probabilities) == 7
    assert seen[0.001] < 0.004
    assert seen[0.012] > 0.005
