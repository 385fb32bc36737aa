"""Input that lives on the host, and its way to the device and back."""

from __future__ import annotations

from typing import Any

from benchmarks.tensorflow.framework import tf
from benchmarks.tensorflow.placement import Placement

PAGEABLE = "synthetic/pageable"


class Transfers:
    """Copies of tensors from the host to the device, and of results from there.

    `synthetic/pageable` input is a numpy array. `synthetic/pinned` is a tensor on the host, which
    TensorFlow copies through its pool of pinned memory where there is a GPU. On the CPU both are
    one copy in memory.
    """

    def __init__(self, tensors: tuple[Any, ...], data: str, place: Placement) -> None:
        self._on_cpu = place.kind == "cpu"
        self._data = data
        arrays = [tensor.numpy() for tensor in tensors]
        if data == PAGEABLE:
            self._source = arrays
        else:
            with tf.device("/CPU:0"):
                self._source = [tf.constant(array) for array in arrays]

    def bring(self) -> tuple[Any, ...]:
        """Return the input, copied to the current device."""
        if self._on_cpu:  # where both conversion and identity may only lend the memory
            tensors = (tf.convert_to_tensor(part) for part in self._source)
            return tuple(tf.raw_ops.DeepCopy(x=tensor) for tensor in tensors)
        return tuple(tf.identity(part) for part in self._source)

    def out(self, result: Any) -> Any:
        """Return the result in host memory, as numpy arrays."""
        return tf.nest.map_structure(lambda part: part.numpy(), result)

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a report says about it."""
        kind = "pageable" if self._data == PAGEABLE else "pinned"
        where = "within host memory" if self._on_cpu else f"from {kind} host memory"
        return {"data_copied": where}
