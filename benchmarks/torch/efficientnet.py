"""EfficientNet-B0 of torchvision: inference and training on synthetic input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.configured import Configured
from benchmarks.known import known_value
from benchmarks.torch import device as devices
from benchmarks.torch import vision

IMAGE_SIZE = 224  # pixels: the resolution EfficientNet-B0 was designed for
CLASSES = 1000
PARAMETERS = 5_288_548  # torchvision's figure for efficientnet_b0, all of them trainable


class EfficientNetB0(Configured):
    """torchvision's efficientnet_b0 in float32, random weights, eager mode, no data set."""

    takes = ("batch_size", "iterations", "warmup", "seed")

    def inference(self) -> None:
        """Forward passes, batch 1 unless batch_size says otherwise."""
        self._inference(self.settings.value("batch_size", 1), iterations=30)

    def inference_batch8(self) -> None:
        """Forward passes, always batch 8."""
        self._inference(8, iterations=10)

    def training(self) -> None:
        """Training steps (forward, backward, SGD), batch 8 unless batch_size says otherwise."""
        device, model = self._device_and_model()
        batch_size = self.settings.value("batch_size", 8)
        images = _images(batch_size, device)
        labels = torch.randint(CLASSES, (batch_size,), device=device)
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        loss = torch.zeros(())

        def step() -> None:
            nonlocal loss
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()

        timed = self._measure(step, batch_size, iterations=6)
        final_loss = float(loss.detach())
        if not math.isfinite(final_loss):
            raise RuntimeError(f"the loss became {final_loss}; these steps trained nothing")
        self._report(timed, device, model, batch_size, {"name": "final_loss", "value": final_loss})

    def _inference(self, batch_size: int, iterations: int) -> None:
        device, model = self._device_and_model()
        images = _images(batch_size, device)
        model.eval()
        with torch.inference_mode():
            output = torch.zeros(())

            def step() -> None:
                nonlocal output
                output = model(images)

            timed = self._measure(step, batch_size, iterations)
            _check_output(output, batch_size)
        self._report(timed, device, model, batch_size)

    def _device_and_model(self) -> tuple[torch.device, torch.nn.Module]:
        torch.manual_seed(self.settings.value("seed", 0))
        device = devices.current()
        model: torch.nn.Module = vision.load().models.efficientnet_b0(weights=None)
        return device, model.to(device)

    def _measure(self, step: Callable[[], None], batch_size: int, iterations: int) -> Any:
        return self.measure(
            step,
            items_per_step=batch_size,
            warmup=self.settings.value("warmup", 3),
            iterations=self.settings.value("iterations", iterations),
            block_size=1,  # each step alone: its latency, not that of steps that overlap
            report=False,
        )

    def _report(
        self,
        timed: Any,
        device: torch.device,
        model: torch.nn.Module,
        batch_size: int,
        *metrics: dict[str, Any],
    ) -> None:
        count = sum(parameter.numel() for parameter in model.parameters())
        known = known_value("parameters", count, PARAMETERS)
        arguments = timed.report_arguments(
            metrics=(known, *metrics),
            extras={
                "device": devices.description(device),
                "threads": torch.get_num_threads(),
                "batch_size": batch_size,
                "dtype": "float32",
                "warmup": self.settings.value("warmup", 3),
                "seed": self.settings.value("seed", 0),
                "torch_version": torch.__version__,
                "torchvision_version": vision.load().__version__,
                "torchvision_operators": "declared only" if vision.is_repaired() else "compiled",
            },
        )
        self.report_benchmark(**arguments)


def _images(batch_size: int, device: torch.device) -> torch.Tensor:
    return torch.randn(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE, device=device)


def _check_output(output: torch.Tensor, batch_size: int) -> None:
    if tuple(output.shape) != (batch_size, CLASSES) or not bool(torch.isfinite(output).all()):
        raise RuntimeError(
            f"the model gave {tuple(output.shape)}; expected {batch_size} finite rows of {CLASSES}"
        )
    if output.requires_grad:
        raise RuntimeError("autograd was on: training's bookkeeping is in these times")
