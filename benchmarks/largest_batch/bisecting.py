"""The largest batch that fits: by doubling, then bisecting. Pure; `probe` runs the probes.

What fits at one size is taken to fit at every smaller one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.largest_batch.probe import Probe


class SearchError(RuntimeError):
    """The search cannot say anything: a probe failed, or not even one example fits."""

    def __init__(self, message: str, probes: tuple[Probe, ...]) -> None:
        super().__init__(message)
        self.probes = probes


@dataclass(frozen=True, kw_only=True)
class Found:
    """The answer. `bound` says what ended the search: memory, or the limit that was set."""

    best: Probe
    bound: Literal["memory", "limit"]
    probes: tuple[Probe, ...]
    memory_bytes: int | None = None  # that each probe was allowed; None: as much as there was


Try = Callable[[int], Probe]


def search(
    probe: Try,
    *,
    limit: int,
    confirm: Try | None = None,
    on_probe: Callable[[Probe], None] | None = None,
) -> Found:
    """Find the largest batch size up to `limit` that fits; it is confirmed by a second probe.

    `confirm` makes that one, where it is to be another kind.

    Raises SearchError when a probe fails for another reason than memory, or when 1 does not fit. A
    batch of 1 may fail when 2 does not: one value a channel is nothing to normalise a batch by.
    """
    done: list[Probe] = []
    fitting, too_large = 0, limit + 1

    def tried(size: int, how: Try = probe) -> Probe:
        found = how(size)
        done.append(found)
        if on_probe is not None:
            on_probe(found)
        if found.status == "failed" and (len(done) > 1 or limit == 1):
            raise SearchError(f"a probe of batch size {size} failed: {found.reason}", tuple(done))
        return found

    size = 1
    while True:
        while too_large - fitting > 1:
            status = tried(size).status
            if status == "failed":
                size = 2
            elif status == "fits":
                fitting = size
                size = min(2 * size, limit) if too_large > limit else (fitting + too_large) // 2
            else:
                too_large = size
                size = (fitting + too_large) // 2
        if not fitting:
            raise SearchError(f"not even batch size 1 fits: {done[-1].reason}", tuple(done))
        confirmed = tried(fitting, confirm or probe)
        if confirmed.status == "fits":
            bound: Literal["memory", "limit"] = "limit" if too_large > limit else "memory"
            return Found(best=confirmed, bound=bound, probes=tuple(done))
        # It fitted only by luck: the answer lies below.
        too_large, fitting = fitting, _largest_below(done, fitting)
        size = (fitting + too_large) // 2


def _largest_below(done: list[Probe], size: int) -> int:
    return max(
        (p.batch_size for p in done if p.status == "fits" and p.batch_size < size), default=0
    )
