"""One step on a state: traced and compiled at its first call, once, and both timed apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.jax._support.framework import jax


class Step:
    """A step that is traced and compiled at its first call, or never (`eager`).

    `function` takes the state and a step's arguments. Its state is `state`; one that `changes` is
    given to the device, and the result begins with its successor.
    """

    def __init__(
        self, function: Callable[..., Any], state: Any, *, changes: bool, eager: bool
    ) -> None:
        self.function = function
        self.state = state
        self.traces = 0
        self.lower_s: float | None = None
        self.compile_s: float | None = None
        self._changes = changes
        self._eager = eager
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._eager:
            with jax.disable_jit():
                found = self.function(self.state, *arguments)
        else:
            if self._compiled is None:
                self._compiled = self._compile(arguments)
            found = self._compiled(self.state, *arguments)
        if self._changes:
            self.state, found = found
        return found

    def _compile(self, arguments: tuple[Any, ...]) -> Any:
        def traced(state: Any, *arguments: Any) -> Any:
            self.traces += 1  # runs when JAX traces, never when it runs what it compiled
            return self.function(state, *arguments)

        began = time.perf_counter()
        donated = (0,) if self._changes else ()
        lowered = jax.jit(traced, donate_argnums=donated).lower(self.state, *arguments)
        self.lower_s = time.perf_counter() - began
        compiled = lowered.compile()
        self.compile_s = time.perf_counter() - began - self.lower_s
        return compiled

    @property
    def facts(self) -> dict[str, Any]:
        """Return the report's notes on tracing and compiling, as far as they have been done."""
        if self.compile_s is None:
            return {}
        return {"traces": self.traces, "lower_s": self.lower_s, "xla_compile_s": self.compile_s}
