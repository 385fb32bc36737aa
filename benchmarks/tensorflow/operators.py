"""Single operators of TensorFlow: FLOP/s and bytes/s of each, by shape, type and threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks._support import machine, operators
from benchmarks._support.operators import CHANNELS, HEAD_SIZE, HEADS, Work, fusion_metrics
from perfrun import SetupError


class Operators(operators.Operators):
    """Operators, each in a graph of its own (`tf.function`); images have their channels last."""

    def matmul(self) -> None:
        """Multiply two square matrices."""
        size = self._size("matmul", accelerated=self._prepare())
        left, right = self._normal(size, size), self._normal(size, size)
        self._run(tf.function(tf.matmul), (left, right), operators.matmul(size, self._dtype))

    def conv2d(self) -> None:
        """Convolve images with 3x3 kernels, 64 channels in and out."""
        batch, size = self._shape("conv2d")
        images = self._normal(batch, size, size, CHANNELS)
        weights = self._normal(3, 3, CHANNELS, CHANNELS)
        convolve = tf.function(lambda x, w: tf.nn.conv2d(x, w, strides=1, padding="SAME"))
        work = operators.conv2d(batch, size, CHANNELS, self._dtype)
        self._run(convolve, (images, weights), work)

    def attention(self) -> None:
        """Scaled dot product attention, 8 heads of 64, as two products and a softmax."""
        batch, tokens = self._shape("attention")
        tensors = tuple(self._normal(batch, HEADS, tokens, HEAD_SIZE) for _ in range(3))

        def attend(query: Any, key: Any, value: Any) -> Any:
            scores = tf.matmul(query * HEAD_SIZE**-0.5, key, transpose_b=True)
            return tf.matmul(tf.nn.softmax(scores), value)

        work = operators.attention(batch, HEADS, tokens, HEAD_SIZE, self._dtype)
        self._run(tf.function(attend), tensors, work)

    def layer_norm(self) -> None:
        """Normalise rows, with scale and shift."""
        rows, features = self._shape("layer_norm")
        layer = tf.keras.layers.LayerNormalization(epsilon=1e-5, dtype=self._dtype)
        layer.build((rows, features))
        work = operators.layer_norm(rows, features, self._dtype)
        self._run(tf.function(layer.call), (self._normal(rows, features),), work)

    def elementwise_eager(self) -> None:
        """Run a chain of eight elementwise operators one by one."""
        values, size = self._chain_input()
        self._run(_chain, (values,), operators.elementwise(size, self._dtype, fused=False))

    def elementwise_fused(self) -> None:
        """Run the same chain compiled by XLA, and compare with running it eagerly."""
        values, size = self._chain_input()
        chain = tf.function(_chain, jit_compile=True)
        work = operators.elementwise(size, self._dtype, fused=True)
        began_s = time.perf_counter()
        result = chain(values)
        result.numpy()  # waits for the device
        first_call_s = time.perf_counter() - began_s
        _check_same(result, _chain(values))
        eager_work = operators.elementwise(size, self._dtype, fused=False)
        eager, fused = self._timed_both(
            lambda: _chain(values), lambda: chain(values), (eager_work, work)
        )
        self._report(fused, work, self._facts(), fusion_metrics(eager, fused, first_call_s))

    def transfer_to_device(self) -> None:
        """Copy a tensor from the host to the device; on the CPU, to another tensor."""
        on_gpu = self._prepare()
        size = self._size("transfer", accelerated=on_gpu)
        with tf.device("CPU:0"):
            source = self._normal(size, size)
        way = "host to device, pageable memory" if on_gpu else _NO_DEVICE
        self._run(
            _to_gpu if on_gpu else lambda tensor: tf.raw_ops.DeepCopy(x=tensor),
            (source,),
            operators.transfer(size, self._dtype, way),
        )

    def transfer_from_device(self) -> None:
        """Copy a tensor from the device into memory that is there; on the CPU, the same."""
        on_gpu = self._prepare()
        size = self._size("transfer", accelerated=on_gpu)
        source = self._normal(size, size)
        target = np.empty(source.shape, source.dtype.as_numpy_dtype)
        # `numpy()` copies from a GPU; on the CPU it shows the tensor's own memory.
        step = source.numpy if on_gpu else lambda: np.copyto(target, source.numpy())
        way = "device to host, pageable memory" if on_gpu else _NO_DEVICE
        work = operators.transfer(size, self._dtype, way)
        timed = self._timed(step, work)
        if not on_gpu:
            _check_same(target, source)
        self._report(timed, work, self._facts())

    def _prepare(self) -> bool:
        """Set threads, seed and device; return True when the device is an accelerator."""
        threads = tf.config.threading
        intra, inter = (self.settings.value(f"{kind}_threads") for kind in ("intra", "inter"))
        if intra is not None:
            threads.set_intra_op_parallelism_threads(intra)
        if inter is not None:
            threads.set_inter_op_parallelism_threads(inter)
        tf.random.set_seed(self.settings.value("seed", 0))
        wanted = self.settings.value("device", "auto")
        if wanted == "cpu":
            tf.config.set_visible_devices([], "GPU")
        found = bool(tf.config.list_logical_devices("GPU"))
        if wanted not in ("auto", "cpu") and not found:
            raise SetupError(f"device is {wanted!r}, and TensorFlow sees no GPU here; take cpu")
        return found

    def _normal(self, *shape: int) -> Any:
        return tf.cast(tf.random.normal(shape), self._dtype)

    def _shape(self, operator: str) -> tuple[int, int]:
        accelerated = self._prepare()
        batch = self._batch(operator, accelerated=accelerated)
        return batch, self._size(operator, accelerated=accelerated)

    def _chain_input(self) -> tuple[Any, int]:
        size = self._size("elementwise", accelerated=self._prepare())
        return self._normal(size, size), size

    def _run(self, call: Callable[..., Any], inputs: tuple[Any, ...], work: Work) -> None:
        timed = self._timed(lambda: call(*inputs), work)
        if not bool(tf.reduce_all(tf.math.is_finite(call(*inputs)))):
            raise RuntimeError(f"{work.operator} of {work.shapes} gave values not finite")
        self._report(timed, work, self._facts())

    def _facts(self) -> dict[str, Any]:
        on_gpu = bool(tf.config.list_logical_devices("GPU"))
        return {
            "device": "gpu" if on_gpu else "cpu",
            "threads": _threads(),
            "tensorflow_version": tf.__version__,
        }


_NO_DEVICE = "a copy within the CPU's memory: there is no other device"


def _to_gpu(tensor: Any) -> Any:
    with tf.device("GPU:0"):
        return tf.identity(tensor)


def _threads() -> int:
    """Return the threads within one operator; TensorFlow's 0 means one per CPU that it may use."""
    chosen = int(tf.config.threading.get_intra_op_parallelism_threads())
    return chosen or machine.usable_processors()


def _chain(values: Any) -> Any:
    """Calculate `operations.CHAIN`."""
    kept = tf.maximum(values * 1.5 + 0.5, 0.0) * values
    return tf.abs(kept - 1.0) * 0.5 + values


def _check_same(found: Any, expected: Any) -> None:
    tolerance = 1e-5 if tf.as_dtype(expected.dtype) == tf.float32 else 5e-2
    difference = tf.cast(found, tf.float32) - tf.cast(expected, tf.float32)
    limit = tolerance * (1 + tf.abs(tf.cast(expected, tf.float32)))
    if not bool(tf.reduce_all(tf.abs(difference) <= limit)):
        raise RuntimeError("the result differs from the reference; these times mean nothing")
