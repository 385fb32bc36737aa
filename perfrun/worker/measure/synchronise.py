"""The wait until the work of a step is done, on all devices of the frameworks in use.

Frameworks are found in `sys.modules` and never imported. A device that has not been used yet is not
started: asking CUDA anything before the benchmark does would change what is measured.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, Union

Wait = Callable[[Any], object]  # takes what the step returned
SynchronizeOption = Union[None, bool, Callable[[], object]]  # None: automatic; False: no wait
NO_DEVICE = -1
FRAMEWORKS = ("torch", "tensorflow", "jax")
_JAX_PLATFORMS = "jax._src.xla_bridge"


class Synchroniser(NamedTuple):
    """The waits at the end of each timed interval."""

    names: Tuple[str, ...]  # of the functions that wait
    waits: Tuple[Wait, ...]
    events: Optional["CudaEvents"]
    device: Optional[str]  # the device of the work, as far as its framework tells
    device_count: int
    frameworks: Tuple[str, ...]  # in use when this was made

    def finish(self, returned: Any) -> None:
        """Wait until all work of the interval is done."""
        if self.events is not None:
            self.events.end()
        for wait in self.waits:
            wait(returned)

    def begin(self) -> None:
        """Mark the begin of the interval on the device."""
        if self.events is not None:
            self.events.begin()

    def device_ns(self) -> int:
        """Return the device's own time for the interval that has just ended."""
        return NO_DEVICE if self.events is None else self.events.elapsed_ns()

    def is_current(self) -> bool:
        """Return False when the step has since loaded a framework, or started a device."""
        return self.frameworks == _in_use()


def find_synchroniser(synchronize: SynchronizeOption = None) -> Synchroniser:
    """Return the waits for all devices in use now. A callable given is called besides these."""
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
        if tensorflow is not None and _tensorflow_started():
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
    """Return a framework whose import has ended; during its import it has no version yet."""
    module = sys.modules.get(name)
    return module if isinstance(getattr(module, "__version__", None), str) else None


def _in_use() -> Tuple[str, ...]:
    names = [name for name in FRAMEWORKS if _module(name) is not None]
    if "torch" in names and _cuda_started(sys.modules["torch"]):
        names.append("cuda")
    if "tensorflow" in names and _tensorflow_started():
        names.append("tensorflow's devices")
    return tuple(names)


def _tensorflow_started() -> bool:
    """Return True if TensorFlow has set up its devices, all of whose memory it then takes."""
    context = sys.modules.get("tensorflow.python.eager.context")
    try:
        existing = context.context_safe()  # type: ignore[union-attr]
        return existing is not None and bool(existing._initialized)
    except Exception:  # noqa: BLE001 - in another version, wait to be sure
        return True


def _cuda_started(torch: Any) -> bool:
    try:
        return bool(torch.cuda.is_initialized())
    except Exception:  # noqa: BLE001 - a build without it
        return False


def _torch(torch: Any) -> Tuple[Optional[Tuple[str, Wait]], str, int]:
    """Return the wait for PyTorch's accelerator, its name, and the number of them in use."""
    kind = _torch_kind(torch)
    if kind == "cuda":
        if not _cuda_started(torch):
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
    """Return the wait for the current device and all on which this process has memory.

    Other devices are left out: synchronising one that is not in use would make a context on it.
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
    """The time between two events on PyTorch's current CUDA stream, by the device's clock.

    It includes moments in which the device is idle, and excludes work on other streams.
    """

    def __init__(self, torch: Any) -> None:
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def begin(self) -> None:
        """Record the first event. Call it inside the timed interval, which is to be longer."""
        self._begin.record()

    def end(self) -> None:
        """Record the second event. Call it before the wait for the device."""
        self._end.record()

    def elapsed_ns(self) -> int:
        """Return the nanoseconds between the events. Call it after the wait for the device."""
        return int(self._begin.elapsed_time(self._end) * 1e6)


def _tensorflow(tensorflow: Any) -> Tuple[str, Wait]:
    """Return the wait by TensorFlow's barrier over all devices (2.9 or newer), or by the results.

    Inside a graph there is no barrier, and a session's results are concrete when it returns. The
    barrier runs an operation on each device, for the streams of accelerators, and then waits for
    the queues of operations. Where all devices are CPUs, which have no streams, the second part is
    the whole wait: the operation takes 11 us, and 3 to 10 % of a step of half a millisecond.
    """
    barrier = getattr(getattr(tensorflow.test, "experimental", None), "sync_devices", None)
    if barrier is not None and tensorflow.executing_eagerly():
        queues = getattr(sys.modules.get("tensorflow.python.eager.context"), "async_wait", None)
        if callable(queues) and _tensorflow_on_cpus(tensorflow):
            return "tensorflow's context.async_wait", lambda _returned: queues()
        return "tf.test.experimental.sync_devices", lambda _returned: barrier()
    return "results made concrete (numpy)", make_concrete


def make_concrete(returned: Any) -> None:
    """Call `numpy()` on every value of a structure that has it, which waits for the value."""
    if isinstance(returned, dict):
        returned = list(returned.values())
    if isinstance(returned, (list, tuple)):
        for item in returned:
            make_concrete(item)
    elif callable(getattr(returned, "numpy", None)):
        returned.numpy()


def _tensorflow_on_cpus(tensorflow: Any) -> bool:
    """Return True if TensorFlow has set up CPUs alone, its remote devices among them."""
    try:
        devices = tensorflow.config.list_logical_devices()
        return all(device.device_type == "CPU" for device in devices)
    except Exception:  # noqa: BLE001 - in another version, take the barrier
        return False


def _tensorflow_device(tensorflow: Any) -> str:
    try:
        # Logical devices, because only those that TensorFlow has set up are in use.
        devices = tensorflow.config.list_logical_devices("GPU")
        return "gpu (%d)" % len(devices) if devices else "cpu"
    except Exception:  # noqa: BLE001 - a name for a device must not fail a benchmark
        return "cpu"


def _jax_wait(jax: Any) -> Wait:
    """Return the wait for the arrays that the step returned, or else for all that are alive.

    Listing all takes 10 us with 20 of them, and looking for arrays in a structure 2 us: 5 % and 1 %
    of a step of 200 us. So a step that returns its array alone is waited for by that array.
    """
    array, leaves_of = jax.Array, jax.tree_util.tree_leaves

    def wait(returned: Any) -> None:
        if isinstance(returned, array):
            returned.block_until_ready()
            return
        leaves = [leaf for leaf in leaves_of(returned) if isinstance(leaf, array)]
        jax.block_until_ready(leaves or _alive(jax))

    return wait


def _alive(jax: Any) -> List[Any]:
    """Return the arrays on all platforms that JAX has started.

    `jax.live_arrays()` lists those of the default platform alone: with a GPU in the machine, none
    of a step on the CPU; and it starts the platforms, where nothing has used one yet.
    """
    started = getattr(sys.modules.get(_JAX_PLATFORMS), "_backends", None)
    platforms = [None] if started is None else list(started)
    return [array for platform in platforms for array in jax.live_arrays(platform)]


def _jax_device(jax: Any) -> str:
    try:
        return str(jax.default_backend())
    except Exception:  # noqa: BLE001 - as above
        return "cpu"
