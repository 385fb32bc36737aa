"""Whether a change that was called is still there now that more nights are known.

An alarm is raised as soon as the evidence is enough, so chance has a hand in when. The nights after
it had no say. PELT (Killick, Fearnhead and Eckley, JASA 107, 2012; here that of ruptures) divides
all nights about the change into levels without being told where it was called.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from perfrun.analysis.energy import whitened

_PENALTY = 4.0  # of a change, in squared standard deviations, times the logarithm of the nights
_SHORTEST = 2  # nights of a level
_NEAR = 5  # nights by which the place may differ


def pelt_sees(nights: NDArray[np.float64], split: int, memory: float) -> bool | None:
    """Whether PELT divides standardised nights near `split`; None without ruptures."""
    try:
        from ruptures import KernelCPD
    except ImportError:  # it does not keep up with the newest Python
        return None
    signal = whitened(nights, memory).reshape(-1, 1)
    search = KernelCPD(kernel="linear", min_size=_SHORTEST).fit(signal)
    found = search.predict(pen=_PENALTY * math.log(len(nights)))[:-1]
    return any(abs(place - split) <= _NEAR for place in found)
