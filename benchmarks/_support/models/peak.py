"""Measure the peak arithmetic of a device: the best of many short operators.

One operator does not show the peak. A library may be slow at one of them on a processor:
products of matrices by MKL on an AMD processor run at half of the rate of oneDNN's convolutions. A
model would then exceed "the peak". So products and convolutions of several shapes are tried: the
convolutions of ResNet, and the products of square matrices and of transformers.
The figure is a maximum and not a median: the fastest of many short calls is an undisturbed one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

from benchmarks._support.models.figures import Peak

_GROW_S, _SCOUT_S = 0.2, 1.0  # for larger sizes; for the first ones of all, on a busy machine
_RACE_S, _TURN_S = 0.3, 0.02  # then for the best ones; for each of them in its turn
_STUBBORN_S = 2.0  # instead of the latter, where the probes stay below what the model did
_LONG_S, _LONGEST_S = 0.003, 0.015  # of a call: it grows until then; one of the best until then
_STUCK_S, _SLOW_S = 0.5, 0.05  # such a first call is not repeated; nor such a second one
_FEWEST = 4  # probes that have a turn however long the first ones take
_UNKNOWN_S = 2.0  # the first call of a type is repeated below this: it may load a library
_HOPELESS = 30  # times slower than another type: its other probes are left out
_RACERS, _FAR_BEHIND = 5, 10  # times slower than the best: it has no chance
FAILURES = (RuntimeError, NotImplementedError, TypeError, ValueError)

Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Call:
    """An operator on its tensors; `run` returns when the device has done it."""

    flops: float  # of one run, a multiply-add being two
    shapes: str
    run: Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One operator in growing sizes, the larger ones for faster devices."""

    kind: str  # `matrix product`
    dtype: str  # as the device calculates
    sizes: Sequence[int]
    make: Callable[[int], Call]


@dataclass(kw_only=True)
class _Racer:
    probe: Probe
    call: Call
    fastest_s: float
    level: int

    @property
    def rate(self) -> float:
        return self.call.flops / self.fastest_s


def measured(
    probes: Iterable[Probe],
    *,
    done_by_model: float | None = None,
    failures: tuple[type[Exception], ...] = FAILURES,
    clock: Clock = time.perf_counter,
) -> Peak:
    """Return the highest rate of any call of any probe; unknown where none of them runs.

    The peak cannot be below `done_by_model`, in FLOP/s. Where it is, all probes were disturbed, and
    they get more time. A probe that raises one of `failures` is left out.
    """
    search = _Search(tuple(probes), failures, clock)
    search.scout()
    search.grow()
    search.race(done_by_model or 0.0)
    return search.peak()


class _Search:
    """The search for the peak: a few calls of each probe, smallest first, then many of the best."""

    def __init__(
        self, probes: tuple[Probe, ...], failures: tuple[type[Exception], ...], clock: Clock
    ) -> None:
        self._probes = probes
        self._failures = failures
        self._clock = clock
        self._racers: list[_Racer] = []  # the best first; the others' tensors are let go
        self._by_kind: dict[str, float] = {}
        self._by_dtype: dict[str, float] = {}
        self._calls = 0
        self._failed = ""

    def scout(self) -> None:
        began = self._clock()
        growing = list(self._probes)
        level = tried = 0
        while growing:
            for probe in tuple(growing):
                most_s = _GROW_S if level else _SCOUT_S
                if tried >= _FEWEST and self._clock() - began > most_s:
                    return
                if self._is_hopeless(probe.dtype):
                    growing.remove(probe)
                    continue
                racer = self._tried(probe, level)
                tried += racer is not None
                if racer is None or _is_last(racer) or racer.fastest_s >= _LONG_S:
                    growing.remove(probe)
            level += 1

    def grow(self) -> None:
        """Try the best ones in larger sizes, at which some libraries are better."""
        began = self._clock()
        for racer in tuple(self._racers):
            largest: _Racer | None = racer
            while largest and not _is_last(largest) and largest.fastest_s < _LONGEST_S:
                if self._clock() - began > _GROW_S:
                    return
                largest = self._tried(racer.probe, largest.level + 1)

    def race(self, done_by_model: float) -> None:
        began = self._clock()
        while self._racers:
            fastest = self._racers[0].rate
            # They take turns, so that a slow moment of the machine falls on all of them.
            for racer in self._racers:
                if racer.rate * _FAR_BEHIND > fastest:
                    self._turn(racer)
            is_below = max(self._by_kind.values()) < done_by_model
            if self._clock() - began >= (_STUBBORN_S if is_below else _RACE_S):
                return

    def peak(self) -> Peak:
        if not self._racers:
            why = f"no probe of the peak runs here: {self._failed or 'there is none'}"
            return Peak(flops_per_second=None, measured_by="", why_unknown=why)
        best = max(self._racers, key=lambda racer: racer.rate)
        kinds = sorted(self._by_kind.items(), key=lambda item: -item[1])
        return Peak(
            flops_per_second=best.rate,
            measured_by=(
                f"the fastest of {self._calls} calls: {best.probe.kind}, {best.call.shapes}, "
                f"{best.probe.dtype}"
            ),
            by_kind=", ".join(f"{kind} {rate / 1e9:.4g}" for kind, rate in kinds) + " GFLOP/s",
        )

    def _is_hopeless(self, dtype: str) -> bool:
        """Return True when the device lacks a type: on many CPUs float16 is a loop over values."""
        seen = self._by_dtype.get(dtype)
        return seen is not None and seen * _HOPELESS < max(self._by_dtype.values())

    def _tried(self, probe: Probe, level: int) -> _Racer | None:
        """Time a probe in one size and keep it if it is among the best; None if it does not run."""
        try:
            call = probe.make(probe.sizes[level])
            times_s = [self._seconds(call)]  # wakes threads; a GPU's library tries its kernels
            if times_s[0] < (_STUCK_S if probe.dtype in self._by_dtype else _UNKNOWN_S):
                times_s.append(self._seconds(call))
            if times_s[-1] < _SLOW_S:
                times_s.append(self._seconds(call))
        except self._failures as error:
            self._failed = " ".join(str(error).split())[:200]
            return None
        racer = _Racer(probe=probe, call=call, fastest_s=min(times_s), level=level)
        self._note(racer)
        self._racers.append(racer)
        self._racers.sort(key=lambda each: -each.rate)
        best_sizes = {id(each.probe): each for each in reversed(self._racers)}
        self._racers = [each for each in self._racers if best_sizes[id(each.probe)] is each]
        del self._racers[_RACERS:]
        return racer

    def _turn(self, racer: _Racer) -> None:
        began = self._clock()
        while self._clock() - began < _TURN_S:
            try:
                racer.fastest_s = min(racer.fastest_s, self._seconds(racer.call))
            except self._failures:  # of a call that ran before: what it did then stays
                return
        self._note(racer)

    def _note(self, racer: _Racer) -> None:
        kind = f"{racer.probe.kind} {racer.probe.dtype}"
        self._by_kind[kind] = max(racer.rate, self._by_kind.get(kind, 0.0))
        dtype = racer.probe.dtype
        self._by_dtype[dtype] = max(racer.rate, self._by_dtype.get(dtype, 0.0))

    def _seconds(self, call: Call) -> float:
        began = self._clock()
        call.run()
        self._calls += 1
        return self._clock() - began


def _is_last(racer: _Racer) -> bool:
    return racer.level + 1 == len(racer.probe.sizes)


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
        """Return True when the result has the first factor's shape, so that it can replace it."""
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
        """Return two for each multiply-add, those with the frame included, as all counts do."""
        return 2.0 * size * (self.side * self.channels * self.kernel) ** 2


def products(*, threads: int, accelerated: bool) -> Iterator[Product]:
    """Yield the products; on a CPU each thread has work."""
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


Operator = TypeVar("Operator", Product, Convolution)


def probes(
    operators: Iterable[Operator], dtype: str, make: Callable[[Operator, int], Call]
) -> list[Probe]:
    """Return a probe of each operator; `make` makes a call of one in a size."""
    return [
        Probe(kind=each.kind, dtype=dtype, sizes=each.sizes, make=partial(make, each))
        for each in operators
    ]


def in_turns(of_type: Callable[[str], list[Probe]], dtype: str) -> list[Probe]:
    """Return the probes of float32 and of a type, which may be the same; types take turns.

    Models in a 16-bit type leave some operators in float32, and on many CPUs the arithmetic of
    float16 is slower by orders of magnitude.
    """
    each = [of_type(name) for name in dict.fromkeys(("float32", dtype))]
    return list(chain.from_iterable(zip(*each, strict=True)))


def branches(*, threads: int, inter_threads: int, accelerated: bool) -> Iterator[tuple[int, int]]:
    """Yield the number of operators that run at the same time, and the threads of each.

    Together they use all threads, and are no larger than one operator for all of them.
    """
    most = 1 if accelerated else min(inter_threads, _MOST_AT_ONCE)
    for width in dict.fromkeys((1, most)):
        yield width, max(1, threads // width)


def _most_values(threads: int) -> int:
    return max(threads * _TENSOR_BYTES, _LEAST_BYTES) // _VALUE_BYTES
