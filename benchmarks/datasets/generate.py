"""Images from a seed: neither flat nor noise, and of classes that can be told apart.

Each class has a pattern of its own; each image mixes it with coarse and fine structure, so that the
files are about as long as those of photographs and a small network can learn the classes.
"""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from typing import Any

from benchmarks.datasets import pictures

JPEG_QUALITY = 90
SUFFIXES = {"jpeg": ".jpg", "png": ".png"}
# Weights in the mixture: of coarse structure over the class's pattern, of fine structure over both.
COARSE, FINE = 0.5, 0.3


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a generated data set consists of; the same recipe gives the same pixels."""

    classes: int
    images: int
    height: int
    width: int
    seed: int
    encoding: str  # jpeg, png, or raw

    def class_name(self, label: int) -> str:
        """Return its folder's name: in the order of the names, classes have their own numbers."""
        return f"class_{label:0{len(str(self.classes - 1))}d}"

    def count(self, label: int) -> int:
        """Return how many of the images have this label: as evenly as it goes."""
        return self.images // self.classes + (label < self.images % self.classes)


def picture(recipe: Recipe, label: int, number: int) -> Any:
    """Return the image `number` of a class, a `PIL.Image` in RGB."""
    image = pictures.library()
    own = random.Random(f"{recipe.seed}/{label}/{number}")
    of_class = random.Random(f"{recipe.seed}/{label}")
    size = (recipe.width, recipe.height)
    coarse = image.blend(_structure(of_class, 4, size), _structure(own, 8, size), COARSE)
    return image.blend(coarse, _structure(own, max(size) // 4 + 1, size), FINE)


def encoded(recipe: Recipe, image: Any) -> bytes:
    """Return the image as a JPEG or PNG file, or its raw pixels as Caffe stores them."""
    if recipe.encoding == "raw":
        return b"".join(band.tobytes() for band in reversed(image.split()))
    file = io.BytesIO()
    options = {"quality": JPEG_QUALITY} if recipe.encoding == "jpeg" else {}
    image.save(file, recipe.encoding, **options)
    return file.getvalue()


def _structure(source: random.Random, cells: int, size: tuple[int, int]) -> Any:
    image = pictures.library()
    grid = image.frombytes("RGB", (cells, cells), source.randbytes(3 * cells * cells))
    return grid.resize(size, image.Resampling.BICUBIC)
