"""The formulas of arithmetic: held against loops that do each multiply-add."""

from __future__ import annotations

import itertools

import pytest

from benchmarks._support.models import counting


def multiply_adds(size: int, kernel: int, stride: int, *, outputs: int, groups: int) -> int:
    """Count one image's multiply-adds of a convolution without padding, one by one."""
    places = range(0, size - kernel + 1, stride)
    group = range(8 // groups)  # of eight input channels
    taps = range(kernel)
    loops = (places, places, range(outputs), group, taps, taps)
    return sum(1 for _ in itertools.product(*loops))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_a_convolution_is_its_multiply_adds_whatever_groups_and_stride(
    groups: int, stride: int
) -> None:
    side = (9 - 3) // stride + 1
    weights = (16, 8 // groups, 3, 3)
    flops = counting.convolution(weights, batch=5, places=(side, side))
    assert flops == 2 * 5 * multiply_adds(9, 3, stride, outputs=16, groups=groups)


def test_a_product_of_batches_repeats_what_is_missing() -> None:
    assert counting.product((3, 4), (4, 5)) == 2 * 3 * 4 * 5
    assert counting.product((7, 3, 4), (7, 4, 5)) == 7 * counting.product((3, 4), (4, 5))
    assert counting.product((7, 3, 4), (4, 5)) == 7 * counting.product((3, 4), (4, 5))
    assert counting.product((1, 3, 4), (6, 7, 4, 5)) == 42 * counting.product((3, 4), (4, 5))
    assert counting.product((4,), (4, 5)) == counting.product((1, 4), (4, 5))
    assert counting.product((3, 4), (4,)) == counting.product((3, 4), (4, 1))
    with pytest.raises(ValueError, match="no product"):
        counting.product((3, 4), (5, 6))


def test_an_einsum_is_the_product_that_it_stands_for() -> None:
    heads = counting.contraction(("btd", "dhk"), ((2, 16, 64), (64, 8, 8)))
    assert heads == counting.product((2, 16, 64), (64, 64))
    assert counting.contraction(("abc",), ((2, 3, 4),)) == 0
    with pytest.raises(ValueError, match="more than two"):
        counting.contraction(("ab", "bc", "cd"), ((2, 2),) * 3)
    with pytest.raises(ValueError, match="does not name"):
        counting.contraction(("ab", "bc"), ((2, 2, 2), (2, 2)))


def test_attention_is_its_two_products() -> None:
    query, key, value = (2, 8, 16, 64), (2, 8, 24, 64), (2, 8, 24, 32)
    scores = counting.product((2, 8, 16, 64), (2, 8, 64, 24))
    mixed = counting.product((2, 8, 16, 24), (2, 8, 24, 32))
    assert counting.attention(query, key, value) == scores + mixed


def test_the_convention_is_said_in_the_same_words_for_all_frameworks() -> None:
    inference = counting.known(300, examples=2, training=False)
    training = counting.known(900, examples=2, training=True)
    assert (inference.flops_per_example, training.flops_per_example) == (150, 450)
    convention = "shapes of operators: convolutions, matrix products and attention, "
    assert inference.counted_by == convention + "2 per multiply-add, forward pass"
    assert training.counted_by == convention + "2 per multiply-add, forward and backward pass"
    nothing = counting.known(0, examples=2, training=False)
    assert nothing.flops_per_example is None
    assert "no convolution" in nothing.why_unknown
