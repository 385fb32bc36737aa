"""Wait until the work of a step is really done, on whatever device the frameworks in use put it.

Frameworks are found in `sys.modules` and never imported, and a device that nobody has used yet is
not woken up: asking CUDA anything before the benchmark does would change what it measures.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, Union

Wait = Callable[[Any], object]  # takes what the step returned
Given = Union[None, bool, Callable[[], object]]  # None: automatic; False: none at all
NO_DEVICE = -1
FRAMEWORKS = ("torch", "tensorflow", "jax")


class Synchroniser(NamedTuple):
    """How to wait, once for each timed interval."""

    names: Tuple[str, ...]  # what is waited for
    waits: Tuple[Wait, ...]
    events: Optional["CudaEvents"]
    device: Optional[str]  # where the work runs, as far as its framework tells
    device_count: int
    frameworks: Tuple[str, ...]  # that were loaded when this was found out

    def finish(self, returned: Any) -> None:
        """Return when all work of the interval is done."""
        if self.events is not None:
            self.events.end()
        for wait in self.waits:
            wait(returned)

    def begin(self) -> None:
        """Mark the interval's begin on the device."""
        if self.events is not None:
            self.events.begin()

    def device_ns(self) -> int:
        """The device's own time for the interval that has just been finished."""
        return NO_DEVICE if self.events is None else self.events.elapsed_ns()

    def is_current(self) -> bool:
        """False when the step has loaded a framework, or woken a device, since."""
        return self.frameworks == _in_use()


def find(synchronize: Given = None) -> Synchroniser:
    """Find out what must be waited for now. A given callable is called besides the rest."""
    found: List[Tuple[str, Wait]] = []
    events = None
    device, count = "cpu", 1
    if synchronize is not False:
        torch = _module("torch")
        if torch is not None:
            wait, device, count = _torch(torch)
            if wait is not None:
                found.append(wait)
                events = CudaEvents(torch) if device.startswith("cuda") else None
        tensorflow = _module("tensorflow")
        if tensorflow is not None and _tensorflow_awake():
            found.append(_tensorflow(tensorflow))
            if device == "cpu":
                device = _tensorflow_device(tensorflow)
        jax = _module("jax")
        if jax is not None:
            found.append(("jax.block_until_ready", _jax_wait(jax)))
            device = device if device != "cpu" else _jax_device(jax)
    if callable(synchronize):
        given = synchronize
        found.append(("synchronize=", lambda _returned: given()))
    return Synchroniser(
        names=tuple(name for name, _ in found),
        waits=tuple(wait for _, wait in found),
        events=events,
        device=device,
        device_count=count,
        frameworks=_in_use(),
    )


def _module(name: str) -> Any:
    """A framework that is imported to its end; one that is being imported has no version yet."""
    module = sys.modules.get(name)
    return module if isinstance(getattr(module, "__version__", None), str) else None


def _in_use() -> Tuple[str, ...]:
    names = [name for name in FRAMEWORKS if _module(name) is not None]
    if "torch" in names and _cuda_awake(sys.modules["torch"]):
        names.append("cuda")
    if "tensorflow" in names and _tensorflow_awake():
        names.append("tensorflow's devices")
    return tuple(names)


def _tensorflow_awake() -> bool:
    """False when TensorFlow has set up no device yet; it takes all their memory when it does."""
    context = sys.modules.get("tensorflow.python.eager.context")
    try:
        existing = context.context_safe()  # type: ignore[union-attr]
        return existing is not None and bool(existing._initialized)
    except Exception:  # noqa: BLE001 - another version: better wait than not
        return True


def _cuda_awake(torch: Any) -> bool:
    try:
        return bool(torch.cuda.is_initialized())
    except Exception:  # noqa: BLE001 - a build without it
        return False


def _torch(torch: Any) -> Tuple[Optional[Tuple[str, Wait]], str, int]:
    """How to wait for PyTorch's accelerator, what it is, and on how many of them work lies."""
    kind = _torch_kind(torch)
    if kind == "cuda":
        if not _cuda_awake(torch):
            return None, "cpu", 1
        return _cuda(torch)
    if kind is None:
        return None, "cpu", 1
    owner = getattr(torch, "accelerator", None) or getattr(torch, kind)
    name = "torch.accelerator.synchronize" if hasattr(torch, "accelerator") else "torch.%s" % kind
    return (name, lambda _returned: owner.synchronize()), kind, 1


def _torch_kind(torch: Any) -> Optional[str]:
    if hasattr(torch, "accelerator"):  # PyTorch 2.6 or newer
        if not torch.accelerator.is_available():
            return None
        return str(torch.accelerator.current_accelerator().type)
    if torch.cuda.is_available():
        return "cuda"
    mps = getattr(getattr(torch, "backends", None), "mps", None)
    return "mps" if mps is not None and mps.is_available() else None


def _cuda(torch: Any) -> Tuple[Tuple[str, Wait], str, int]:
    """All devices on which this process has memory, and the current one.

    Not all there are: synchronising one that is not in use would make a context on it.
    """
    current = torch.cuda.current_device()
    count = torch.cuda.device_count()
    holding = [i for i in range(count) if torch.cuda.memory_reserved(i) > 0]
    used = sorted({current, *holding})
    owner = torch.accelerator if hasattr(torch, "accelerator") else torch.cuda
    name = "torch.%s.synchronize" % ("accelerator" if hasattr(torch, "accelerator") else "cuda")

    def wait(_returned: Any) -> None:
        for index in used:
            owner.synchronize(index)

    return (name, wait), "cuda (%s)" % torch.cuda.get_device_name(current), max(1, len(holding))


class CudaEvents:
    """Time between two events on PyTorch's current CUDA stream: the device's clock, not ours.

    The span holds the device's idle moments too; work on other streams is not in it.
    """

    def __init__(self, torch: Any) -> None:
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def begin(self) -> None:
        """To be called inside the timed interval, so that the span cannot be the longer one."""
        self._begin.record()

    def end(self) -> None:
        """To be called before the device is waited for."""
        self._end.record()

    def elapsed_ns(self) -> int:
        """Nanoseconds between the events; to be called after the device was waited for."""
        return int(self._begin.elapsed_time(self._end) * 1e6)


def _tensorflow(tensorflow: Any) -> Tuple[str, Wait]:
    """TensorFlow's own barrier over all devices and its queues (2.9 or newer); else the results.

    Inside a graph there is no barrier, and a session's results are concrete when it returns.
    """
    barrier = getattr(getattr(tensorflow.test, "experimental", None), "sync_devices", None)
    if barrier is not None and tensorflow.executing_eagerly():
        return "tf.test.experimental.sync_devices", lambda _returned: barrier()
    return "results made concrete (numpy)", make_concrete


def make_concrete(returned: Any) -> None:
    """Call `numpy()` on everything in a structure that has it: the value must then be there."""
    if isinstance(returned, dict):
        returned = list(returned.values())
    if isinstance(returned, (list, tuple)):
        for item in returned:
            make_concrete(item)
    elif callable(getattr(returned, "numpy", None)):
        returned.numpy()


def _tensorflow_device(tensorflow: Any) -> str:
    try:
        # Not `list_physical_devices` alone: only what TensorFlow has set up is in use.
        devices = tensorflow.config.list_logical_devices("GPU")
        return "gpu (%d)" % len(devices) if devices else "cpu"
    except Exception:  # noqa: BLE001 - a name for a device must not fail a benchmark
        return "cpu"


def _jax_wait(jax: Any) -> Wait:
    """Wait for the arrays the step returned; if it returned none, for all that are alive."""

    def wait(returned: Any) -> None:
        leaves = [leaf for leaf in jax.tree_util.tree_leaves(returned) if _is_jax(jax, leaf)]
        jax.block_until_ready(leaves or jax.live_arrays())

    return wait


def _is_jax(jax: Any, leaf: Any) -> bool:
    return isinstance(leaf, jax.Array)


def _jax_device(jax: Any) -> str:
    try:
        return str(jax.default_backend())
    except Exception:  # noqa: BLE001 - as above
        return "cpu"
