"""Keep the garbage collector from looking through a million values that are none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Do not look for garbage: a million points are none, and looking takes a third of the time.

    Nor look at what is there by the end, ever: the first look afterwards would take as long. What
    is no longer referred to goes all the same; only a cycle among those objects would stay.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
