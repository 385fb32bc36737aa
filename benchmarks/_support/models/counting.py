"""Count multiply-adds from the shapes of operators: one convention for every framework.

Counted are convolutions, products of matrices and attention, a multiply-add as two FLOPs.
Normalisation, activations, softmax, pooling, embeddings, the loss and the update of the weights are
not counted. A framework's module finds its operators and their shapes, and calls these formulas.

A gradient costs as much as the forward pass of its operator: one for the input, one for the
weights, each only where it is computed (the first layer's input has none). Zeros that a framework
puts between or around values to compute a gradient are never counted. Those that a forward
convolution pads its input with are, as is usual: its formula knows the places of its output alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks._support.models.figures import Work

Shape = Sequence[int]


def known(flops: float, *, examples: int, training: bool) -> Work:
    """Return the arithmetic of one example from that of a batch; nothing counted is unknown."""
    if not flops:
        return unknown("the model has no convolution, matrix product or attention to be counted")
    passes = "forward and backward pass" if training else "forward pass"
    return Work(
        flops_per_example=flops / examples,
        counted_by=(
            "shapes of operators: convolutions, matrix products and attention, "
            f"2 per multiply-add, {passes}"
        ),
    )


def unknown(why: str) -> Work:
    """Return the arithmetic of a model that cannot be counted, with the reason in one line."""
    return Work(flops_per_example=None, counted_by="", why_unknown=" ".join(why.split())[:200])


def convolution(weights: Shape, *, batch: int, places: Shape) -> int:
    """Count a convolution, or one of its two gradients: each weight is used once at each place.

    `weights` is the whole shape of the weights, with the input channels of one group. `places` is
    the shape in space of the output (of the incoming gradient, in a gradient); of a transposed
    convolution it is that of the input. This holds for any groups, stride, padding and dilation.
    """
    return 2 * batch * math.prod(places) * math.prod(weights)


def product(first: Shape, second: Shape) -> int:
    """Count a product of matrices, or of batches of them: `(..., m, k)` by `(..., k, n)`.

    A batch may be missing on one side, or of 1 there. A vector is a matrix of one column or row.
    """
    rows = first if len(first) > 1 else (1, *first)
    columns = second if len(second) > 1 else (*second, 1)
    if rows[-1] != columns[-2]:
        raise ValueError(f"matrices of {tuple(first)} and {tuple(second)} have no product")
    batch = _joined(rows[:-2], columns[:-2])
    return 2 * batch * rows[-2] * rows[-1] * columns[-1]


def _joined(first: Shape, second: Shape) -> int:
    """Return the number of matrices in a batch; a size that is missing or 1 is repeated."""
    length = max(len(first), len(second))
    sides = [(1,) * (length - len(each)) + tuple(each) for each in (first, second)]
    return math.prod(a if b == 1 else b for a, b in zip(*sides, strict=True))


def contraction(terms: Sequence[str], shapes: Sequence[Shape]) -> int:
    """Count an einsum of one or two tensors, each with an index for every dimension.

    There is a multiply-add for every combination of the indices. One tensor alone is only summed.
    """
    if len(terms) < 2:
        return 0
    if len(terms) > 2:
        raise ValueError(f"the einsum of {', '.join(terms)} has more than two tensors")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if len(term) != len(shape):
            raise ValueError(f"the einsum's {term} does not name the {len(shape)} dimensions")
        for index, size in zip(term, shape, strict=True):
            sizes[index] = max(size, sizes.get(index, 1))
    return 2 * math.prod(sizes.values())


def attention(query: Shape, key: Shape, value: Shape) -> int:
    """Count attention in one kernel as its two products; both gradients together are twice that.

    The shapes are `(..., heads, tokens, width)`. A causal mask saves nothing by this count, as
    in the products that a model without such a kernel computes.
    """
    shares = (*query[:-1], key[-2])
    scores = 2 * math.prod(shares) * query[-1]
    return scores + 2 * math.prod(shares) * value[-1]
