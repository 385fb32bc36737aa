"""Whether a change that was called is still there now that more nights are known.

An alarm is raised as soon as the evidence is enough, so chance has a hand in when. The nights after
it had no say. PELT (Killick, Fearnhead and Eckley, JASA 107, 2012; here that of ruptures) divides
all nights about the change into levels without being told where it was called.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfrun.analysis.energy import whitened

_PENALTY = 4.0  # of a change, in squared standard deviations, times the logarithm of the nights
_SHORTEST = 2  # nights of a level
_NEAR = 5  # nights by which the place may differ
# What a compiled part says that is not there, takes or gives something else, or does not load.
_NOT_AS_READ = (ImportError, AttributeError, TypeError, ValueError, IndexError)


def pelt_sees(nights: NDArray[np.float64], split: int, memory: float) -> bool | None:
    """Whether PELT divides standardised nights near `split`; None without ruptures."""
    signal = whitened(nights, memory).reshape(-1, 1)
    found = _divided(signal, _PENALTY * math.log(len(nights)))
    return None if found is None else any(abs(place - split) <= _NEAR for place in found)


def _divided(signal: NDArray[np.float64], penalty: float) -> list[int] | None:
    """Where levels begin, the first one aside."""
    package = find_spec("ruptures")  # it does not keep up with the newest Python
    if package is None:
        return None
    if len(signal) < 2 * _SHORTEST:  # one level; the C code would write past its arrays
        return []
    try:
        return _divided_by_the_compiled_part(package, signal, penalty)
    except _NOT_AS_READ:
        return _divided_by_all_of_it(signal, penalty)


def _divided_by_the_compiled_part(
    package: ModuleSpec, signal: NDArray[np.float64], penalty: float
) -> list[int]:
    search = _compiled(*(package.submodule_search_locations or ()))
    begin_of = search.ekcpd_pelt_L2(signal, penalty, _SHORTEST)  # the level that ends there
    found = []
    end = len(signal)
    while begin := int(begin_of[end]):
        if not 0 < begin < end:
            raise ValueError("these are no beginnings of levels")
        found.append(begin)
        end = begin
    return found


def _divided_by_all_of_it(signal: NDArray[np.float64], penalty: float) -> list[int] | None:
    try:
        from ruptures import KernelCPD
    except (ImportError, ValueError):  # built for another numpy
        return None
    search = KernelCPD(kernel="linear", min_size=_SHORTEST).fit(signal)
    return [int(place) for place in search.predict(pen=penalty)[:-1]]


@lru_cache
def _compiled(*folders: str) -> Any:
    """The compiled part of ruptures, which is what its KernelCPD asks; None where it is not there.

    All of ruptures brings scipy.stats and scipy.signal and takes half a second to import, as long
    as reading a hundred thousand figures; this takes a hundredth of that. It is nothing that
    ruptures promises: read of 1.1.10.
    """
    where = [f"{folder}/detection/_detection" for folder in folders]
    spec = PathFinder.find_spec("ruptures.detection._detection.ekcpd", where)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
