"""EfficientNet of keras.applications."""

from __future__ import annotations

from benchmarks.tensorflow.model import NamedModel


class EfficientNetB0(NamedModel):
    """keras.applications.EfficientNetB0; few steps, so that it is a quick first benchmark."""

    model_name = "efficientnet_b0"
    timed_steps = (30, 6)
    warmup_steps = 3

    def inference_batch8(self) -> None:
        """Forward passes, always batch 8."""
        self._measure_model(forward_only=True, batch_size=8, iterations=10)


class EfficientNetB1(NamedModel):
    """keras.applications.EfficientNetB1."""

    model_name = "efficientnet_b1"


class EfficientNetB2(NamedModel):
    """keras.applications.EfficientNetB2."""

    model_name = "efficientnet_b2"


class EfficientNetB3(NamedModel):
    """keras.applications.EfficientNetB3."""

    model_name = "efficientnet_b3"


class EfficientNetB4(NamedModel):
    """keras.applications.EfficientNetB4."""

    model_name = "efficientnet_b4"


class EfficientNetB5(NamedModel):
    """keras.applications.EfficientNetB5."""

    model_name = "efficientnet_b5"


class EfficientNetB6(NamedModel):
    """keras.applications.EfficientNetB6."""

    model_name = "efficientnet_b6"


class EfficientNetB7(NamedModel):
    """keras.applications.EfficientNetB7."""

    model_name = "efficientnet_b7"
