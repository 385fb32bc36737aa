"""The EfficientNets of torchvision."""

from __future__ import annotations

from benchmarks.torch.named import Named


class EfficientNetB0(Named):
    """efficientnet_b0: 5,288,548 parameters, 224 pixels; a fixed number of steps."""

    model_name = "efficientnet_b0"
    timed_steps = (30, 6)
    warmup_steps = 3

    def inference_batch8(self) -> None:
        """Forward passes, always batch 8."""
        self.measure_model(training=False, batch_size=8, iterations=10)


class EfficientNetB1(Named):
    """efficientnet_b1: 7,794,184 parameters, 240 pixels."""

    model_name = "efficientnet_b1"


class EfficientNetB2(Named):
    """efficientnet_b2: 9,109,994 parameters, 260 pixels."""

    model_name = "efficientnet_b2"


class EfficientNetB3(Named):
    """efficientnet_b3: 12,233,232 parameters, 300 pixels."""

    model_name = "efficientnet_b3"


class EfficientNetB4(Named):
    """efficientnet_b4: 19,341,616 parameters, 380 pixels."""

    model_name = "efficientnet_b4"


class EfficientNetB5(Named):
    """efficientnet_b5: 30,389,784 parameters, 456 pixels."""

    model_name = "efficientnet_b5"


class EfficientNetB6(Named):
    """efficientnet_b6: 43,040,704 parameters, 528 pixels."""

    model_name = "efficientnet_b6"


class EfficientNetB7(Named):
    """efficientnet_b7: 66,347,960 parameters, 600 pixels."""

    model_name = "efficientnet_b7"
