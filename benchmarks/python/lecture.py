"""The experiments of a lecture on performance in Python: bytecode, memory, machine code."""

from __future__ import annotations

import dis
import importlib
import platform
from collections.abc import Callable, Mapping
from typing import Any, Literal

from benchmarks._support.knobs import Configured
from perfrun import SetupError

STATEMENTS = 10_000  # evaluations of one expression in a step: some hundred microseconds
OBJECTS = 100_000
SIZE = 300  # side of the array that is summed


class Lecture(Configured):
    """Small experiments with the interpreter; `sum2d_numba` needs numba, `sum2d_numpy` numpy."""

    takes = ("iterations", "warmup", "size")

    def expression(self) -> None:
        """Evaluate `d = a + b * c`; its bytecode is reported, too."""
        if _expression(1) != 7:
            raise RuntimeError("1 + 2 * 3 is not 7 here")
        bytecode = " ".join(item.opname for item in dis.get_instructions(_expression))
        self._run(lambda: _expression(STATEMENTS), STATEMENTS, {"bytecode": bytecode})

    def objects_collected(self) -> None:
        """Make 100,000 lists that refer to each other, the garbage collector on."""
        self._objects("on")

    def objects_uncollected(self) -> None:
        """Make the same lists with the garbage collector off."""
        self._objects("off")

    def sum2d_interpreted(self) -> None:
        """Sum a matrix of floats by two nested loops, in the interpreter."""
        rows = [[float(column) for column in range(self._size)] for _ in range(self._size)]
        self._sum(lambda: _sum2d(rows, self._size), {})

    def sum2d_numpy(self) -> None:
        """Sum the same matrix by a function in C: numpy's `sum`."""
        array = self._array()
        self._sum(lambda: float(array.sum()), {"numpy_version": _library("numpy").__version__})

    def sum2d_numba(self) -> None:
        """Sum the same matrix by the same loops, compiled at the first call by numba."""
        numba = _library("numba")
        array, summed = self._array(), numba.njit(_sum2d)
        self._sum(lambda: summed(array, self._size), {"numba_version": numba.__version__})

    @property
    def _size(self) -> int:
        return self.settings.value("size", SIZE)

    def _array(self) -> Any:
        numpy = _library("numpy")
        return numpy.tile(numpy.arange(self._size, dtype="float64"), (self._size, 1))

    def _sum(self, step: Callable[[], float], extras: Mapping[str, Any]) -> None:
        size = self._size
        found: list[float] = []
        self._run(lambda: found.append(step()), size * size, {"size": size, **extras}, "element")
        if any(total != size * size * (size - 1) / 2 for total in found):
            raise RuntimeError(f"the sum is {found[0]}; these times mean nothing")

    def _objects(self, gc: Literal["on", "off"]) -> None:
        self._run(_chained_lists, OBJECTS, {"garbage_collector": gc}, "object", gc)

    def _run(
        self,
        step: Callable[[], Any],
        items: int,
        extras: Mapping[str, Any],
        item: str = "operation",
        gc: Literal["on", "off"] = "on",
    ) -> None:
        limits = {name: self.settings.value(name) for name in ("iterations", "warmup")}
        self.measure(
            step,
            items_per_step=items,
            item=item,
            gc=gc,
            extras={"python_version": platform.python_version(), **extras},
            **{name: value for name, value in limits.items() if value is not None},
        )


def _expression(count: int) -> int:
    a, b, c, d = 1, 2, 3, 0
    for _ in range(count):
        d = a + b * c
    return d


def _sum2d(values: Any, size: int) -> float:
    result = 0.0
    for row in range(size):
        for column in range(size):
            result += values[row][column]
    return result


def _chained_lists() -> None:
    """Make lists that each hold the one before, so that none dies until all do."""
    last: list[Any] = []
    kept = [last]
    for _ in range(OBJECTS):
        last = [last]
        kept.append(last)
    while kept:  # one by one: freeing a chain from its end would recurse
        kept.pop()


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SetupError(f"this benchmark needs {name}: pip install {name} ({error})") from error
