"""Garbage collections and compilations, which disturb a series from inside its process.

The interpreter itself counts collections, at no cost. Their time must be taken in a callback, which
costs about half a microsecond a collection, and a program that makes many objects collects the
young ones all the time. So the callback stays for the timed part only if the warm-up shows that it
takes a negligible share; else the time is the warm-up's mean times the count.

Compilations are counted by the frameworks. They are found in `sys.modules` and never imported. A
counter that some version lacks is left out, so an absent key is unknown, not zero.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

GC_MODES = ("on", "off", "between")
_CALLBACK_NS = 500
_MOST_OF_TIME = 0.0002  # share of the timed part that the callback may take
_jax_compilations: Optional[List[int]] = None  # one listener for the life of the process


class GarbageWatch:
    """Counts collections; in mode `off` or `between` it keeps them out of the timed intervals.

    `on` leaves the collector as it is. `between` runs due collections between the intervals.
    """

    def __init__(self, mode: str = "on") -> None:
        self._mode = mode
        self._was_enabled = gc.isenabled()
        self._began_ns = 0
        self._spent_ns = 0
        self._seen = 0
        self._own: List[int] = [0, 0, 0]  # collections that `between` ran
        self._before: Optional[List[int]] = None
        self._after: Optional[List[int]] = None
        self._mean_ns = 0.0
        self._source: Optional[str] = None
        self._callbacks: List[Any] = getattr(gc, "callbacks", [])

    def start(self) -> None:
        """Begin to count; the warm-up shows what the callback costs."""
        if self._mode != "on":
            gc.disable()
        self._callbacks.append(self._on_collection)

    def start_timed(self, warmup_ns: int) -> None:
        """Begin to count for the timed part. `warmup_ns` is the length of the warm-up."""
        costs_ns = self._seen * _CALLBACK_NS
        if self._seen:
            self._mean_ns = self._spent_ns / self._seen
        if costs_ns > _MOST_OF_TIME * warmup_ns:
            self._remove_callback()
            self._source = "warm-up's mean times the count"
        else:
            self._source = "callbacks" if hasattr(gc, "callbacks") else None
        self._seen = self._spent_ns = 0
        self._before = _collections()
        self._own = [0, 0, 0]

    def between(self) -> None:
        """Run the collections that are due, if the mode is `between`."""
        if self._mode != "between":
            return
        due = [g for g, (n, most) in enumerate(zip(gc.get_count(), gc.get_threshold())) if n > most]
        if due:
            generation = due[-1]
            gc.collect(generation)
            self._own[generation] += 1

    def stop(self) -> None:
        """End the counting, and restore the collector."""
        self._after = _collections()
        self._remove_callback()
        if self._was_enabled:
            gc.enable()

    def facts(self, timed_ns: int) -> Dict[str, Any]:
        """Return the collections of the timed part, which took `timed_ns`. Call `stop` first."""
        after, before = self._after, self._before
        if after is None or before is None:
            counts = None
        else:
            counts = [a - b - own for a, b, own in zip(after, before, self._own)]
        spent_ns: Optional[float] = None
        if self._source == "callbacks":
            spent_ns = self._spent_ns
        elif self._source and counts is not None:
            spent_ns = min(float(timed_ns), self._mean_ns * sum(counts))
        if self._mode == "between":
            spent_ns = None if counts is None or any(counts) else 0
        return {
            "mode": self._mode,
            "enabled": self._was_enabled and self._mode == "on",
            "collections": counts,
            "time_s": None if spent_ns is None else spent_ns / 1e9,
            "time_source": self._source,
            "share": None if spent_ns is None or not timed_ns else spent_ns / timed_ns,
        }

    def _on_collection(self, phase: str, _info: Any) -> None:
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
        else:
            self._spent_ns += time.perf_counter_ns() - self._began_ns
            self._seen += 1

    def _remove_callback(self) -> None:
        if self._on_collection in self._callbacks:
            self._callbacks.remove(self._on_collection)


def _collections() -> Optional[List[int]]:
    """Return the collections so far, by generation; None if the interpreter lacks them (PyPy)."""
    try:
        return [generation["collections"] for generation in gc.get_stats()]
    except (AttributeError, TypeError, KeyError):
        return None


class CompilationCounters:
    """The counters of compilations in this process.

    * `torch_dynamo_graphs`, `torch_dynamo_frames`: compiled by TorchDynamo (torch.compile).
    * `tf_function_traces`: traces of the tf.functions that the step names (public tracing count).
    * `tf_graph_building_us`: time in which TensorFlow built graphs, of all tf.functions.
    * `jax_compilations`: programs that XLA compiled for JAX.

    TensorFlow does not tell Python what XLA compiles for it. Each such program is also a trace,
    unless only a shape inside one graph changed.
    """

    def __init__(self, step: Optional[Callable[[], object]] = None) -> None:
        self._step = step

    def read(self) -> Dict[str, int]:
        """Return the present values of the counters that exist."""
        found: Dict[str, Optional[int]] = {}
        if "torch" in sys.modules:
            found["torch_dynamo_graphs"] = _dynamo("stats", "unique_graphs")
            found["torch_dynamo_frames"] = _dynamo("frames", "total")
        if "tensorflow" in sys.modules:
            found["tf_function_traces"] = self._traces()
            found["tf_graph_building_us"] = _graph_building_us()
        if "jax" in sys.modules:
            found["jax_compilations"] = _jax()
        return {name: count for name, count in found.items() if count is not None}

    def _traces(self) -> Optional[int]:
        try:
            functions = list({id(found): found for found in _functions(self._step)}.values())
            return sum(int(function.experimental_get_tracing_count()) for function in functions)
        except Exception:  # noqa: BLE001 - a framework's counters never fail a benchmark
            return None


def counter_rises(before: Dict[str, int], after: Dict[str, int]) -> Dict[str, Optional[int]]:
    """Return the rise of each counter; None for one that fell, because it was reset.

    A counter that is new began at zero: its framework was loaded in between.
    """
    rises = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: rise if rise >= 0 else None for name, rise in rises.items()}


def _dynamo(group: str, name: str) -> Optional[int]:
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0  # torch.compile has not been called
    try:
        return int(utils.counters[group][name])
    except Exception:  # noqa: BLE001 - as above
        return None


def _graph_building_us() -> Optional[int]:
    module = sys.modules.get("tensorflow.python.eager.polymorphic_function.tracing_compilation")
    try:
        return int(module._graph_building_time_counter.get_cell().value())  # type: ignore[union-attr]
    except Exception:  # noqa: BLE001 - as above
        return None


def _jax() -> Optional[int]:
    global _jax_compilations
    if _jax_compilations is None:
        seen: List[int] = [0]

        def listen(event: str, _duration_s: float, **_more: Any) -> None:
            seen[0] += event == "/jax/core/compile/backend_compile_duration"

        try:
            sys.modules["jax"].monitoring.register_event_duration_secs_listener(listen)
        except Exception:  # noqa: BLE001 - as above
            return None
        _jax_compilations = seen
    return _jax_compilations[0]


def _functions(step: Any) -> Iterator[Any]:
    """Yield the tf.functions that a step is, wraps, closes over, names, or finds in its `self`."""
    for value in _reachable(step):
        if hasattr(type(value), "experimental_get_tracing_count"):
            yield value


def _reachable(step: Any) -> Iterator[Any]:
    yield step
    if isinstance(step, functools.partial):
        yield from _reachable(step.func)
        yield from step.args
        return
    function = getattr(step, "__func__", step)
    owner = getattr(step, "__self__", None)
    code = getattr(function, "__code__", None)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # a name that has no value yet
    for name in getattr(code, "co_names", ()):
        yield getattr(function, "__globals__", {}).get(name)
        if owner is not None:
            yield getattr(owner, "__dict__", {}).get(name)
