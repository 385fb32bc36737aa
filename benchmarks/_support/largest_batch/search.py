"""Search for the largest batch of a model that fits, by doubling and then bisecting.

It assumes that a size fits when a larger one does.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from benchmarks._support import child
from benchmarks._support.knobs import Configured
from benchmarks._support.machine import available_bytes
from perfrun import SetupError

if TYPE_CHECKING:  # imported for a search: without one it would only add to the trial's memory
    from benchmarks._support.largest_batch.probe import Probe


class SearchError(RuntimeError):
    """The search has no result: a probe failed, or not even one example fits."""

    def __init__(self, message: str, probes: tuple[Probe, ...]) -> None:
        super().__init__(message)
        self.probes = probes


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result. `bound` says what ended the search: memory, or the limit that was set."""

    best: Probe
    bound: Literal["memory", "limit"]
    probes: tuple[Probe, ...]
    memory_bytes: int | None = None  # that each probe was allowed; None: as much as there was


Try = Callable[[int], "Probe"]


def search(
    probe: Try,
    *,
    limit: int,
    confirm: Try | None = None,
    on_probe: Callable[[Probe], None] | None = None,
) -> Found:
    """Find the largest batch size up to `limit` that fits; it is confirmed by a second probe.

    `confirm` makes that one, where it is of another kind.

    SearchError is raised when a probe fails for another reason than memory, or when 1 does not fit.
    A batch of 1 may fail where 2 does not: batch normalisation needs two values a channel.
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
        # It fitted only once: the answer lies below.
        too_large, fitting = fitting, _largest_below(done, fitting)
        size = (fitting + too_large) // 2


def _largest_below(done: list[Probe], size: int) -> int:
    return max(
        (p.batch_size for p in done if p.status == "fits" and p.batch_size < size), default=0
    )


KNOBS = ("max_batch_search", "max_batch_limit", "max_batch_memory")
LIMIT = 65_536
MEMORY_SHARE = 0.8  # of what is available: the rest is for what others begin in the meantime
STEPS, CONFIRMING_STEPS = 2, 5


class BatchSearch(Configured, ABC):
    """A benchmark class whose batch sizes can be tried.

    `batch_trial` names a module with `trial(arguments, batch_size, steps)`, which makes an object
    of the class from the arguments and runs steps with it.
    """

    batch_trial: ClassVar[str]

    def max_batch_size(self) -> None:
        """Find the largest batch that fits; of training, or of inference with `forward_only`."""
        self._report_found(self._search_batch({}))

    def _batch_found_first(self, **fixed: Any) -> Found | None:
        """Search before a measurement where `max_batch_search` asks for it.

        `fixed` are knobs that the measuring method decides; a value of None leaves a knob free.
        """
        known = {name: value for name, value in fixed.items() if value is not None}
        return self._search_batch(known) if self._wants_batch_search() else None

    def _wants_batch_search(self) -> bool:
        """Return True when a search comes first; SetupError when a batch size is given, too."""
        wanted = self.settings.value("max_batch_search", False)
        if wanted and self.settings.value("batch_size") is not None:
            raise SetupError("max_batch_search finds the batch size; do not give batch_size, too")
        return bool(wanted)

    def _search_batch(self, fixed: Mapping[str, Any]) -> Found:
        """Search, and write every probe to disk as soon as it is done."""
        from benchmarks._support.largest_batch.probe import Prober, Target

        memory_bytes = self._memory_bytes()
        folder = child.new_folder(Path(self.output_dir), "max_batch")
        table = folder / "probes.jsonl"
        limit = self.settings.value("max_batch_limit", LIMIT)
        prober = Prober(
            target=Target(
                module=self.batch_trial,
                function="trial",
                arguments={
                    "class": [type(self).__module__, type(self).__qualname__],
                    "knobs": {**self._knobs_of_a_probe(), **fixed},
                },
            ),
            folder=folder,
            memory_bytes=memory_bytes,
            steps=STEPS,
        )

        def written(probe: Probe) -> None:
            with table.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dataclasses.asdict(probe)) + "\n")

        confirm = dataclasses.replace(prober, steps=CONFIRMING_STEPS)
        try:
            found = search(prober, confirm=confirm, limit=limit, on_probe=written)
        except SearchError as error:
            raise SetupError(f"{error} (probes: {table})") from None
        return dataclasses.replace(found, memory_bytes=memory_bytes)

    def _knobs_of_a_probe(self) -> dict[str, Any]:
        others = (name for name in self.takes if name not in (*KNOBS, "batch_size"))
        found = {name: self.settings.value(name) for name in others}
        return {name: value for name, value in found.items() if value is not None}

    def _memory_bytes(self) -> int | None:
        available = available_bytes()
        share = None if available is None else int(MEMORY_SHARE * available)
        return self.settings.value("max_batch_memory", share)

    def _report_found(self, found: Found | None) -> None:
        """Report the result of a search, where there was one."""
        if found is None:
            return
        best = found.best
        assert best.step_median_s is not None
        rate = best.batch_size / best.step_median_s
        values = {
            "max_batch_size": best.batch_size,
            "examples_per_second": rate,
            "latency_median_s": best.step_median_s,
            "peak_rss_bytes": best.peak_rss_bytes,
            "device_peak_bytes": best.device_peak_bytes,
        }
        knobs = self._knobs_of_a_probe()
        self.report_benchmark(
            name="max_batch_size",
            iters=best.steps,
            wall_time=best.step_median_s,
            throughput=rate,
            metrics=[
                {"name": name, "value": value}
                for name, value in values.items()
                if value is not None
            ],
            extras={
                **{name: value for name, value in knobs.items() if name != "input_shape"},
                "batch_size": best.batch_size,
                "max_batch_bound": found.bound,
                "max_batch_limit": self.settings.value("max_batch_limit", LIMIT),
                "max_batch_memory": found.memory_bytes or "not limited",
                "probes": len(found.probes),
            },
        )
