"""Convolutional networks of DLBS that no library has in this form."""

from __future__ import annotations

import torch
from torch import nn


def alexnet() -> nn.Module:
    """AlexNet (Krizhevsky et al., 2012) on one device, so without groups: 62,378,344."""
    return nn.Sequential(
        *_convolution(3, 96, 11, stride=4),
        nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2.0),
        nn.MaxPool2d(3, 2),
        *_convolution(96, 256, 5, padding=2),
        nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=2.0),
        nn.MaxPool2d(3, 2),
        *_convolution(256, 384, 3, padding=1),
        *_convolution(384, 384, 3, padding=1),
        *_convolution(384, 256, 3, padding=1),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        *_classifier(256 * 6 * 6, 4096, 4096),
    )


def alexnet_owt() -> nn.Module:
    """AlexNet of "one weird trick" (Krizhevsky, arXiv:1404.5997): 61,100,840 parameters."""
    return nn.Sequential(
        *_convolution(3, 64, 11, stride=4, padding=2),
        nn.MaxPool2d(3, 2),
        *_convolution(64, 192, 5, padding=2),
        nn.MaxPool2d(3, 2),
        *_convolution(192, 384, 3, padding=1),
        *_convolution(384, 256, 3, padding=1),
        *_convolution(256, 256, 3, padding=1),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        *_classifier(256 * 6 * 6, 4096, 4096),
    )


def overfeat() -> nn.Module:
    """The fast model of OverFeat (Sermanet et al., arXiv:1312.6229): 145,920,872 parameters."""
    return nn.Sequential(
        *_convolution(3, 96, 11, stride=4),
        nn.MaxPool2d(2, 2),
        *_convolution(96, 256, 5),
        nn.MaxPool2d(2, 2),
        *_convolution(256, 512, 3, padding=1),
        *_convolution(512, 1024, 3, padding=1),
        *_convolution(1024, 1024, 3, padding=1),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        *_classifier(1024 * 6 * 6, 3072, 4096),
    )


def googlenet() -> nn.Module:
    """GoogLeNet (Szegedy et al., arXiv:1409.4842) as published: no batch normalisation.

    Without the two auxiliary classifiers, which only training to convergence needs: 6,998,552.
    """
    return nn.Sequential(
        *_convolution(3, 64, 7, stride=2, padding=3),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
        *_convolution(64, 64, 1),
        *_convolution(64, 192, 3, padding=1),
        nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        _Inception(192, 64, 96, 128, 16, 32, 32),
        _Inception(256, 128, 128, 192, 32, 96, 64),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        _Inception(480, 192, 96, 208, 16, 48, 64),
        _Inception(512, 160, 112, 224, 24, 64, 64),
        _Inception(512, 128, 128, 256, 24, 64, 64),
        _Inception(512, 112, 144, 288, 32, 64, 64),
        _Inception(528, 256, 160, 320, 32, 128, 128),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        _Inception(832, 256, 160, 320, 32, 128, 128),
        _Inception(832, 384, 192, 384, 48, 128, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(1024, 1000),
    )


class _Inception(nn.Module):  # type: ignore[misc]
    """Four branches side by side; the numbers are the channels of table 1 of the paper."""

    def __init__(
        self, inputs: int, one: int, three_in: int, three: int, five_in: int, five: int, pool: int
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            (
                nn.Sequential(*_convolution(inputs, one, 1)),
                nn.Sequential(
                    *_convolution(inputs, three_in, 1), *_convolution(three_in, three, 3, padding=1)
                ),
                nn.Sequential(
                    *_convolution(inputs, five_in, 1), *_convolution(five_in, five, 5, padding=2)
                ),
                nn.Sequential(nn.MaxPool2d(3, 1, padding=1), *_convolution(inputs, pool, 1)),
            )
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(images) for branch in self.branches], dim=1)


def _convolution(
    inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0
) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inputs, outputs, size, stride, padding), nn.ReLU(inplace=True)


def _classifier(features: int, first: int, second: int) -> tuple[nn.Module, ...]:
    return (
        *(nn.Dropout(), nn.Linear(features, first), nn.ReLU(inplace=True)),
        *(nn.Dropout(), nn.Linear(first, second), nn.ReLU(inplace=True)),
        nn.Linear(second, 1000),
    )
