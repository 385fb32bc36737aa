"""Whether a framework compiled something: its own counters, read before and after.

Frameworks are found in `sys.modules` and never imported. A counter that has gone away in some
version is left out, so an absent key is unknown, not zero.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional

_jax_compilations: Optional[List[int]] = None  # one listener for the life of the process


class Compilations:
    """Counts compilations in this process.

    * `torch_dynamo_graphs`, `torch_dynamo_frames`: what TorchDynamo compiled (torch.compile).
    * `tf_function_traces`: of the tf.functions that the step names (public tracing count).
    * `tf_graph_building_us`: time TensorFlow spent building graphs, whosever tf.function it was.
    * `jax_compilations`: what XLA compiled for JAX.

    TensorFlow does not tell Python what XLA compiles for it; each such program is a trace too,
    unless only a shape inside one graph changed.
    """

    def __init__(self, step: Optional[Callable[[], object]] = None) -> None:
        self._step = step

    def read(self) -> Dict[str, int]:
        """Return the counters that can be had, as they are now."""
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


def difference(before: Dict[str, int], after: Dict[str, int]) -> Dict[str, Optional[int]]:
    """Return what each counter rose by; None when it fell, because somebody has reset it.

    A counter that appears in between began at zero: its framework was loaded since.
    """
    rises = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: rise if rise >= 0 else None for name, rise in rises.items()}


def _dynamo(group: str, name: str) -> Optional[int]:
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0  # nobody has called torch.compile
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
    """The tf.functions that a step is, wraps, closes over, names, or finds in its `self`."""
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
