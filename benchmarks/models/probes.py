"""Operators in which a device shows the most arithmetic that it can do, as shapes. Pure.

Convolutions are those of ResNet, products those of square matrices and of transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PRODUCT, BATCHED = "matrix product", "batched product"
_SIDES = (256, 512, 1024, 2048, 4096, 8192)
_WIDE = (768, 3072)  # the middle of a transformer's block
_HEAD = 256  # sides of the matrices of a batched product
# On the CPU the tensors are part of the process's memory, of which a trial reports the peak.
_MOST_IMAGES = 64
_TENSOR_BYTES, _LEAST_BYTES = 2**19, 2**20  # of an input, for each thread; allowed in any case
_VALUE_BYTES = 4  # float32; other types have less
_MOST_AT_ONCE = 4
# kernel, channels, pixels of a side
_CONVOLUTIONS = ((3, 128, 28), (3, 64, 56), (1, 256, 14), (3, 256, 14), (1, 512, 14))


@dataclass(frozen=True, kw_only=True)
class Product:
    """Products of (rows x inner) and (inner x columns) matrices; `sizes` are rows or batches."""

    kind: str
    sizes: Sequence[int]
    is_square: bool = False

    @property
    def repeats(self) -> bool:
        """Whether the result has the first factor's shape, and can be one in its turn."""
        return self.is_square or self.kind == BATCHED

    def shapes(self, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of both factors."""
        if self.kind == BATCHED:
            return (size, _HEAD, _HEAD), (size, _HEAD, _HEAD)
        if self.is_square:
            return (size, size), (size, size)
        return (size, _WIDE[0]), _WIDE

    def flops(self, size: int) -> float:
        """Return two for each multiply-add."""
        first, second = self.shapes(size)
        batch = first[0] if self.kind == BATCHED else 1
        return 2.0 * batch * first[-2] * first[-1] * second[-1]


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution with as many channels out as in and a frame of zeros; `sizes` are batches."""

    kernel: int
    channels: int
    side: int
    sizes: Sequence[int]

    @property
    def kind(self) -> str:
        return f"{self.kernel}x{self.kernel} convolution"

    def flops(self, size: int) -> float:
        """Return two for each multiply-add, those with the frame too, as all counts do."""
        return 2.0 * size * (self.side * self.channels * self.kernel) ** 2


def products(*, threads: int, accelerated: bool) -> Iterator[Product]:
    """Yield the products; on a CPU there is something for each thread."""
    share = 64 if accelerated else min(threads, _MOST_IMAGES)
    most = _most_values(threads)
    sides = _SIDES[3:] if accelerated else [side for side in _SIDES if side**2 <= most]
    yield Product(kind=PRODUCT, sizes=sides, is_square=True)
    yield Product(kind=PRODUCT, sizes=(64 * share, (256 if accelerated else 128) * share))
    yield Product(kind=BATCHED, sizes=(2 * share, (8 if accelerated else 4) * share))


def convolutions(*, threads: int, accelerated: bool) -> Iterator[Convolution]:
    """Yield the convolutions, those first that are the fastest on most processors."""
    most = 128 if accelerated else _MOST_IMAGES
    images = 64 if accelerated else min(threads, most)
    more = (2 * images,) if accelerated else (4 * images, 8 * images)
    for kernel, channels, side in _CONVOLUTIONS:
        fitting = most if accelerated else min(most, _most_values(threads) // (channels * side**2))
        sizes = sorted({images, *(max(images, min(each, fitting)) for each in more)})
        yield Convolution(kernel=kernel, channels=channels, side=side, sizes=sizes)


def branches(*, threads: int, inter_threads: int, accelerated: bool) -> Iterator[tuple[int, int]]:
    """Yield how many operators are tried at the same time, and for how many threads each is.

    Together they are for all threads: no larger than one operator for all of them is.
    """
    most = 1 if accelerated else min(inter_threads, _MOST_AT_ONCE)
    for width in dict.fromkeys((1, most)):
        yield width, max(1, threads // width)


def _most_values(threads: int) -> int:
    return max(threads * _TENSOR_BYTES, _LEAST_BYTES) // _VALUE_BYTES
