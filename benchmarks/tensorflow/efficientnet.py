"""EfficientNet of keras.applications."""

from __future__ import annotations

from benchmarks.tensorflow.named import Named


class EfficientNetB0(Named):
    """keras.applications.EfficientNetB0; few steps, so that it is a quick first benchmark."""

    model_name = "efficientnet_b0"
    timed_steps = (30, 6)
    warmup_steps = 3

    def inference_batch8(self) -> None:
        """Forward passes, always batch 8."""
        self.measure_model(training=False, batch_size=8, iterations=10)


class EfficientNetB1(Named):
    """keras.applications.EfficientNetB1."""

    model_name = "efficientnet_b1"


class EfficientNetB2(Named):
    """keras.applications.EfficientNetB2."""

    model_name = "efficientnet_b2"


class EfficientNetB3(Named):
    """keras.applications.EfficientNetB3."""

    model_name = "efficientnet_b3"


class EfficientNetB4(Named):
    """keras.applications.EfficientNetB4."""

    model_name = "efficientnet_b4"


class EfficientNetB5(Named):
    """keras.applications.EfficientNetB5."""

    model_name = "efficientnet_b5"


class EfficientNetB6(Named):
    """keras.applications.EfficientNetB6."""

    model_name = "efficientnet_b6"


class EfficientNetB7(Named):
    """keras.applications.EfficientNetB7."""

    model_name = "efficientnet_b7"
