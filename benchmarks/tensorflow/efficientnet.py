"""EfficientNet-B0 of Keras: inference and training on synthetic input, as compiled graphs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks.configured import Configured
from benchmarks.known import known_value

IMAGE_SIZE = 224  # pixels: the resolution EfficientNet-B0 was designed for
CLASSES = 1000
PARAMETERS = 5_330_571  # keras.applications' figure: weights, batch statistics, input normalisation
TRAINABLE_PARAMETERS = 5_288_548  # the weights alone; torchvision's model has the same number


class EfficientNetB0(Configured):
    """keras.applications.EfficientNetB0 in float32, random weights, tf.function, no data set."""

    takes = ("batch_size", "iterations", "warmup", "seed")

    def inference(self) -> None:
        """Forward passes, batch 1 unless batch_size says otherwise."""
        self._inference(self.settings.value("batch_size", 1), iterations=30)

    def inference_batch8(self) -> None:
        """Forward passes, always batch 8."""
        self._inference(8, iterations=10)

    def training(self) -> None:
        """Training steps (forward, backward, SGD), batch 8 unless batch_size says otherwise."""
        model = self._model()
        batch_size = self.settings.value("batch_size", 8)
        images = _images(batch_size)
        labels = tf.random.uniform((batch_size,), maxval=CLASSES, dtype=tf.int32)
        optimizer = tf.keras.optimizers.SGD(learning_rate=0.01, momentum=0.9)
        optimizer.build(model.trainable_variables)  # variables may not be made inside the graph
        loss_of = tf.keras.losses.SparseCategoricalCrossentropy()

        def train() -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(labels, model(images, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=False))
            return loss

        compiled = tf.function(train)
        final_loss = math.nan

        def step() -> None:
            nonlocal final_loss
            final_loss = float(compiled().numpy())

        timed = self._measure(step, batch_size, iterations=6)
        if not math.isfinite(final_loss):
            raise RuntimeError(f"the loss became {final_loss}; these steps trained nothing")
        self._report(timed, model, batch_size, {"name": "final_loss", "value": final_loss})

    def _inference(self, batch_size: int, iterations: int) -> None:
        model = self._model()
        images = _images(batch_size)
        forward = tf.function(lambda batch: model(batch, training=False))
        output: Any = None

        def step() -> None:
            nonlocal output
            output = forward(images).numpy()  # copied to the host: the work is done

        timed = self._measure(step, batch_size, iterations)
        _check_output(output, batch_size)
        self._report(timed, model, batch_size)

    def _model(self) -> Any:
        tf.keras.utils.set_random_seed(self.settings.value("seed", 0))
        return tf.keras.applications.EfficientNetB0(weights=None)

    def _measure(self, step: Callable[[], None], batch_size: int, iterations: int) -> Any:
        # The loss of a training step is known before its weights are updated: `measure` waits for
        # all that TensorFlow's devices have to do.
        return self.measure(
            step,
            items_per_step=batch_size,
            warmup=self.settings.value("warmup", 3),
            iterations=self.settings.value("iterations", iterations),
            block_size=1,  # each step alone: its latency, not that of steps that overlap
            report=False,
        )

    def _report(self, timed: Any, model: Any, batch_size: int, *metrics: dict[str, Any]) -> None:
        trainable = sum(math.prod(variable.shape) for variable in model.trainable_variables)
        known = (
            known_value("parameters", model.count_params(), PARAMETERS),
            known_value("trainable_parameters", trainable, TRAINABLE_PARAMETERS),
        )
        arguments = timed.report_arguments(
            metrics=(*known, *metrics),
            extras={
                "device": _device(),
                "threads": _threads(),
                "batch_size": batch_size,
                "dtype": "float32",
                "warmup": self.settings.value("warmup", 3),
                "seed": self.settings.value("seed", 0),
                "tensorflow_version": tf.__version__,
                "keras_version": tf.keras.__version__,
            },
        )
        self.report_benchmark(**arguments)


def _images(batch_size: int) -> Any:
    # Keras' model scales and normalises by itself: it wants pixel values.
    return tf.random.uniform((batch_size, IMAGE_SIZE, IMAGE_SIZE, 3), maxval=255.0)


def _device() -> str:
    accelerators = tf.config.list_logical_devices("GPU")
    return "gpu" if accelerators else "cpu"


def _threads() -> int:
    """Threads within one operator; TensorFlow's 0 means one per CPU that it may use."""
    chosen = int(tf.config.threading.get_intra_op_parallelism_threads())
    usable = getattr(os, "sched_getaffinity", None)
    return chosen or (len(usable(0)) if usable else os.cpu_count() or 1)


def _check_output(output: Any, batch_size: int) -> None:
    if output.shape != (batch_size, CLASSES) or not bool(tf.reduce_all(tf.math.is_finite(output))):
        raise RuntimeError(
            f"the model gave {tuple(output.shape)}; expected {batch_size} finite rows of {CLASSES}"
        )
