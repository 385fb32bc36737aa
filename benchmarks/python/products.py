"""A matrix product with NumPy, which measures the BLAS library of this environment."""

from __future__ import annotations

import os
import platform
from typing import Any, ClassVar

from benchmarks._support import operators
from benchmarks._support.operators import Operators
from perfrun import SetupError

SIZE = 512


class Product(Operators):
    """One operator, for machines without a framework. Threads are those of the BLAS library."""

    takes: ClassVar[tuple[str, ...]] = ("size", "iterations", "warmup", "seed")

    def matmul(self) -> None:
        """Multiply two square matrices of float32; needs numpy."""
        numpy = _numpy()
        size = self.settings.value("size", SIZE)
        random = numpy.random.default_rng(self.settings.value("seed", 0))
        left, right = (random.standard_normal((size, size), dtype="float32") for _ in range(2))
        product = numpy.empty((size, size), dtype="float32")
        work = operators.matmul(size, "float32")
        timed = self._timed(lambda: numpy.matmul(left, right, out=product), work)
        row = left[0].astype("float64") @ right.astype("float64")
        if not numpy.allclose(product[0], row, rtol=1e-3, atol=1e-3):
            raise RuntimeError("the product is wrong; these times mean nothing")
        facts = {
            "numpy_version": numpy.__version__,
            "python_version": platform.python_version(),
            "blas": _blas(numpy),
            "cpus": os.cpu_count() or 1,
        }
        self._report(timed, work, facts)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise SetupError(f"this benchmark needs numpy: pip install numpy ({error})") from error
    return numpy


def _blas(numpy: Any) -> str:
    """Return the name of the BLAS library, as NumPy tells it."""
    try:
        found = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{found['name']} {found['version']}"
    except (KeyError, TypeError):  # NumPy before 1.25
        return "unknown"
