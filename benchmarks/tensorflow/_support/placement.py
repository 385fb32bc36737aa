"""The place where TensorFlow runs: the device, and the threads of its pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks._support import machine
from benchmarks._support.knobs import Settings
from benchmarks.tensorflow._support.framework import tf
from perfrun import SetupError

_GPU_WORDS = ("gpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A device, by TensorFlow's name for it."""

    name: str  # `/CPU:0`
    kind: str  # `cpu` or `gpu`
    description: str  # the kind, and the model where TensorFlow tells it

    def scope(self) -> Any:
        """Return the context in which tensors and variables are made on this device."""
        return tf.device(self.name)


def choose(settings: Settings) -> Placement:
    """Set the threads and return the device; SetupError for a device that is not there.

    It must be called before TensorFlow has started anything: its pools cannot be changed later.
    """
    _set_threads(settings)
    wanted = settings.value("device", "auto")
    word, _, number = wanted.partition(":")
    if word not in ("auto", "cpu", *_GPU_WORDS):
        raise SetupError(f"device is {wanted!r}; TensorFlow has auto, cpu, gpu and cuda:N here")
    if word == "cpu":
        return _cpu()
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus and word == "auto":
        return _cpu()
    index = int(number or 0)
    if index >= len(gpus):
        raise SetupError(f"device is {wanted!r}; TensorFlow sees {len(gpus)} GPUs")
    details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
    model = details.get("device_name", "")
    return Placement(
        name=f"/GPU:{index}", kind="gpu", description=f"gpu ({model})" if model else "gpu"
    )


def _cpu() -> Placement:
    return Placement(name="/CPU:0", kind="cpu", description="cpu")


def _set_threads(settings: Settings) -> None:
    threading = tf.config.threading
    for kind in ("intra", "inter"):
        wanted = settings.value(f"{kind}_threads")
        if wanted is None or wanted == getattr(threading, f"get_{kind}_op_parallelism_threads")():
            continue
        try:
            getattr(threading, f"set_{kind}_op_parallelism_threads")(wanted)
        except RuntimeError as error:
            raise SetupError(
                f"{kind}_threads is {wanted}, and TensorFlow has started its threads: they cannot "
                "be changed in this process any more"
            ) from error


def wait(result: Any) -> None:
    """Wait until the device has finished a result, of any structure."""
    for part in tf.nest.flatten(result):  # copying to the host waits for the device
        part.numpy()


def peak_bytes() -> int | None:
    """Return the peak memory of the first GPU; None where there is none."""
    if not tf.config.list_logical_devices("GPU"):
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def threads() -> dict[str, int]:
    """Return the threads within an operator and across operators; 0 is TensorFlow's choice."""
    cpus = machine.usable_processors()
    threading = tf.config.threading
    return {
        "threads": int(threading.get_intra_op_parallelism_threads()) or cpus,
        "inter_threads": int(threading.get_inter_op_parallelism_threads()) or cpus,
    }
