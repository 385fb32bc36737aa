"""The place where JAX runs: the device, and the threads of XLA's pool on the CPU."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from benchmarks._support import machine
from benchmarks._support.knobs import Settings
from benchmarks.jax._support.framework import jax
from perfrun import SetupError

# XLA asks for it when its CPU client is made: the size of its one pool of threads.
_POOL = "PJRT_NPROC"
_RUNTIME = "jax._src.xla_bridge"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A device of JAX."""

    device: Any
    kind: str  # `cpu`, `gpu`, `tpu`

    @property
    def description(self) -> str:
        """Return the kind, and the model of an accelerator."""
        return self.kind if self.kind == "cpu" else f"{self.kind} ({self.device.device_kind})"

    def scope(self) -> Any:
        """Return the context in which arrays are made on this device."""
        return jax.default_device(self.device)

    def wait(self) -> None:
        """Wait for all arrays of the device's kind: a loss may be there before the updates."""
        jax.block_until_ready(jax.live_arrays(self.kind))

    def peak_bytes(self) -> int | None:
        """Return the peak memory of an accelerator; None on the CPU."""
        stats = None if self.kind == "cpu" else self.device.memory_stats()
        return int(stats["peak_bytes_in_use"]) if stats else None


def choose(settings: Settings) -> Placement:
    """Set the threads and return the device; SetupError for a device that is not there."""
    _set_threads(settings)
    wanted = settings.value("device", "auto")
    word, _, number = wanted.partition(":")
    if word == "auto":
        return _at(jax.devices()[0])
    kind = "gpu" if word == "cuda" else word
    if kind not in ("cpu", "gpu"):
        raise SetupError(f"device is {wanted!r}; JAX has auto, cpu, gpu and cuda:N here")
    try:
        found = jax.devices(kind)
    except RuntimeError:
        found = []
    index = int(number or 0)
    if index >= len(found):
        seen = f"{len(found)} of {kind}" if found else f"no {kind}"
        raise SetupError(f"device is {wanted!r}; JAX {jax.__version__} sees {seen} here")
    return _at(found[index])


def _at(device: Any) -> Placement:
    return Placement(device=device, kind=str(device.platform))


def _set_threads(settings: Settings) -> None:
    within, between = settings.value("intra_threads"), settings.value("inter_threads")
    if within is not None and within != threads():
        if _has_started():
            raise SetupError(
                f"intra_threads is {within}, and JAX has started its threads: they cannot be "
                "changed in this process any more"
            )
        os.environ[_POOL] = str(within)
    if between is not None and between != threads():
        raise SetupError(
            f"inter_threads is {between}; XLA has one pool, of {threads()} threads, within and "
            "between operators: give intra_threads alone"
        )


def _has_started() -> bool:
    """Return True when JAX has made its devices; asking JAX itself would make them."""
    return bool(getattr(sys.modules.get(_RUNTIME), "_backends", None))


def threads() -> int:
    """Return the size of XLA's pool of threads on the CPU."""
    for name in (_POOL, "NPROC"):
        given = os.environ.get(name, "")
        if given.isdigit() and int(given) > 0:
            return int(given)
    return machine.usable_processors()
