"""The ML frameworks that a benchmark has loaded, and the memory peaks of their allocators.

An allocator's peak is exact, and known only to its framework: the device's driver sees only what an
allocator took from it. Frameworks are asked as the worker's last act; this imports nothing and
starts no device.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional


NAMES = ("tensorflow", "torch", "jax")


def loaded_frameworks() -> List[Dict[str, Optional[str]]]:
    """Describe every framework in this process, without importing anything."""
    found = []
    for name in NAMES:
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if isinstance(version, str):
            build = _build_version(name, module)
            found.append({"name": name, "version": version, "build_version": build})
    return found


def main_framework(benchmark_class: Any) -> Optional[Dict[str, Optional[str]]]:
    """Return the framework the benchmark is about, when several are loaded.

    A class derived from TensorFlow's belongs to TensorFlow. For other classes it is the framework
    that the class's module names, or else the first in `NAMES`.
    """
    found = loaded_frameworks()
    if len(found) < 2 or benchmark_class is None:
        return found[0] if found else None
    bases = {base.__module__.partition(".")[0] for base in benchmark_class.__mro__}
    module = sys.modules.get(benchmark_class.__module__)
    named = {_origin(value) for value in list(vars(module).values())} if module else set()
    for names in (bases, named):
        for framework in found:
            if framework["name"] in names:
                return framework
    return found[0]


def _origin(value: Any) -> Optional[str]:
    """Return the top-level package that a global name of a module was imported from."""
    try:
        name = value.__name__ if isinstance(value, ModuleType) else value.__module__
        return str(name).partition(".")[0]
    except Exception:  # noqa: BLE001 - a proxy may raise anything
        return None


def _build_version(name: str, module: Any) -> Optional[str]:
    if name == "tensorflow":
        return _plain(getattr(module, "__git_version__", None))
    if name == "torch":
        return _plain(getattr(getattr(module, "version", None), "git_version", None))
    return _plain(getattr(sys.modules.get("jaxlib"), "__version__", None))


def _plain(version: Any) -> Optional[str]:
    """Return a version without the `b'...'` that TensorFlow's may have; PerfZero strips it, too."""
    if version is None:
        return None
    text = str(version)
    return text[2:-1] if text.startswith("b'") else text


def allocator_peaks() -> List[Dict[str, Any]]:
    """Return one entry for each framework and device that it used, or one with a `reason`.

    `peak_allocated_bytes` were in use by tensors; `peak_reserved_bytes` were taken from the device,
    cache included (None where the framework does not say). Both count since the process began, or
    since the benchmark itself reset the framework's statistics.
    """
    found: List[Dict[str, Any]] = []
    readers: Dict[str, Callable[[Any], List[Dict[str, Any]]]] = {
        "torch": _torch,
        "tensorflow": _tensorflow,
        "jax": _jax,
    }
    for name, read in readers.items():
        module = sys.modules.get(name)
        if getattr(module, "__version__", None) is None:  # not loaded, or half of it
            continue
        try:
            entries = read(module)
        except Exception as error:  # noqa: BLE001 - a peak must not fail a trial
            entries = [{"reason": "%s does not say: %s: %s" % (name, type(error).__name__, error)}]
        found += [dict(entry, framework=name) for entry in entries]
    return found


def _torch(torch: Any) -> List[Dict[str, Any]]:
    entries = []
    for kind in ("cuda", "xpu"):  # ROCm is "cuda" to torch
        backend = getattr(torch, kind, None)
        if backend is None or not backend.is_initialized():
            continue
        for index in range(backend.device_count()):
            reserved = backend.max_memory_reserved(index)
            if reserved:
                allocated = backend.max_memory_allocated(index)
                entries.append(_entry("%s:%d" % (kind, index), allocated, reserved))
    return entries or [{"reason": "torch used no CUDA, ROCm or XPU device"}]


def _tensorflow(tensorflow: Any) -> List[Dict[str, Any]]:
    context = _tensorflow_context()
    if context is None:
        return [{"reason": "TensorFlow's runtime was not started"}]
    memory_info = tensorflow.config.experimental.get_memory_info
    entries = []
    for device in tensorflow.config.list_logical_devices():
        if device.device_type in ("CPU", "TPU_SYSTEM"):
            continue  # the CPU's allocator keeps no peak
        name = device.name.replace("/device:", "")
        entries.append(_entry(name.lower(), memory_info(name)["peak"], None))
    return entries or [{"reason": "TensorFlow used no device but the CPU"}]


def _tensorflow_context() -> Any:
    """Return the eager runtime if it was started: listing devices would start it."""
    module = sys.modules.get("tensorflow.python.eager.context")
    context = module.context_safe() if module else None
    return context if getattr(context, "_initialized", False) else None


def _jax(jax: Any) -> List[Dict[str, Any]]:
    bridge = sys.modules.get("jax._src.xla_bridge")
    if not getattr(bridge, "_backends", None):
        return [{"reason": "JAX's runtime was not started"}]
    entries = []
    for device in jax.local_devices():
        stats = device.memory_stats()
        if stats and "peak_bytes_in_use" in stats:
            name = "%s:%d" % (device.platform, device.id)
            entries.append(_entry(name, stats["peak_bytes_in_use"], stats.get("peak_pool_bytes")))
    return entries or [{"reason": "JAX used no device whose allocator keeps a peak"}]


def _entry(device: str, allocated: Any, reserved: Any) -> Dict[str, Any]:
    return {
        "device": device,
        "peak_allocated_bytes": int(allocated),
        "peak_reserved_bytes": None if reserved is None else int(reserved),
    }
