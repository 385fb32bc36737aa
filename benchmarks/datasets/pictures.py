"""Decoding of images with Pillow."""

from __future__ import annotations

import importlib
from typing import IO, Any

from benchmarks.datasets.defect import DataError

# Of ImageNet's training set, colour by colour from 0 to 1, and the mean of these for grey images.
MEAN = {3: (0.485, 0.456, 0.406), 1: (0.449,)}
DEVIATION = {3: (0.229, 0.224, 0.225), 1: (0.226,)}


def library() -> Any:
    """Return the module `PIL.Image`; DataError names the package where it is missing."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise DataError(f"images need Pillow (pip install pillow): {error}") from None


def decoded(file: str | IO[bytes], what: str) -> Any:
    """Return the `PIL.Image`, all its pixels read; DataError names `what` when it is broken."""
    try:
        with library().open(file) as image:
            return image.copy() if image.mode in ("RGB", "L") else image.convert("RGB")
    except library().UnidentifiedImageError:
        raise DataError(f"{what}: not an image of a format that Pillow knows") from None
    # Pillow's decoders raise all of these for bytes that are no image.
    except (OSError, SyntaxError, ValueError, EOFError, IndexError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{what}: not a whole image ({_one_line(error)})") from None


def fitted(image: Any, channels: int, height: int, width: int) -> Any:
    """Return the image in this many channels (1 or 3) and pixels, resized as a whole."""
    image = image.convert("RGB" if channels == 3 else "L")
    if image.size == (width, height):
        return image
    return image.resize((width, height), library().Resampling.BILINEAR)


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, height and width; DataError for a shape that no image has."""
    if len(shape) != 3 or shape[0] not in MEAN:
        sizes = "x".join(map(str, shape))
        raise DataError(f"input {sizes} is no image (1xHxW or 3xHxW); data_dir holds images")
    channels, height, width = shape
    return channels, height, width


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
