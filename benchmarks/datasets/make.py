"""Make a small data set of generated images: `python -m benchmarks.datasets.make FOLDER`.

Nothing is downloaded. A folder gets its final name only when the data set in it is complete.

Images come from a seed and are neither flat nor noise. Each class has a pattern of its own, which
each image mixes with coarse and fine structure. So the files are about as long as those of
photographs, and a small network can learn the classes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._support.datasets import caffe_lmdb, pictures
from benchmarks._support.datasets.pictures import DataError, ImageFolder

JPEG_QUALITY = 90
SUFFIXES = {"jpeg": ".jpg", "png": ".png"}
# Weights in the mixture: of coarse structure over the class's pattern, of fine structure over both.
COARSE, FINE = 0.5, 0.3


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The description of a generated data set; the same recipe gives the same pixels."""

    classes: int
    images: int
    height: int
    width: int
    seed: int
    encoding: str  # jpeg, png, or raw

    def class_name(self, label: int) -> str:
        """Return a class's folder name; the order of the names is that of the class numbers."""
        return f"class_{label:0{len(str(self.classes - 1))}d}"

    def count(self, label: int) -> int:
        """Return the number of images with a label; the labels have about equally many."""
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


ABOUT = "dataset.json"  # beside the images: the recipe


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the data set of the command line; return exit status 2 when it cannot be made."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        recipe = _recipe(given)
        make(given.folder, given.format, recipe)
    except (DataError, OSError) as error:
        parser.error(str(error))  # exits
    sys.stdout.write(f"{given.folder}: {given.format}, {recipe.images} images\n")
    return 0


def make(folder: Path, kind: str, recipe: Recipe) -> None:
    """Write a data set of `image_folder` or `caffe_lmdb` into a folder that is not there yet."""
    if folder.exists():
        raise DataError(f"{folder} is there already; remove it, or name another folder")
    if kind == ImageFolder.backend and recipe.encoding == "raw":
        raise DataError("encoding raw is for caffe_lmdb; an image_folder has jpeg or png files")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        aside.mkdir()
        write = _write_folder if kind == ImageFolder.backend else _write_lmdb
        write(aside, recipe)
        about = {"format": kind, **vars(recipe)}
        (aside / ABOUT).write_text(json.dumps(about, indent=2) + "\n")
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write_folder(folder: Path, recipe: Recipe) -> None:
    for label, name, image in _images(recipe):
        path = folder / recipe.class_name(label) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded(recipe, image))


def _write_lmdb(folder: Path, recipe: Recipe) -> None:
    # This reserves address space, not disk: the file grows as records are written.
    map_size = 2 * recipe.images * (3 * recipe.height * recipe.width + 8192) + 2**24
    environment = caffe_lmdb.library().open(str(folder), map_size=map_size)
    with environment, environment.begin(write=True) as transaction:
        for number, (label, name, image) in enumerate(_images(recipe)):
            record = caffe_lmdb.Datum(
                channels=3,
                height=recipe.height,
                width=recipe.width,
                data=encoded(recipe, image),
                label=label,
                encoded=recipe.encoding != "raw",
            )
            key = f"{number:08d}_{recipe.class_name(label)}/{name}"
            transaction.put(key.encode(), caffe_lmdb.encode(record))


def _images(recipe: Recipe) -> Iterator[tuple[int, str, Any]]:
    """Yield label, file name and image of each, in the order of an image_folder's numbers."""
    suffix = SUFFIXES.get(recipe.encoding, "")
    for label in range(recipe.classes):
        for number in range(recipe.count(label)):
            yield label, f"{number:08d}{suffix}", picture(recipe, label, number)


def _recipe(given: argparse.Namespace) -> Recipe:
    if given.images < given.classes:
        raise DataError(f"{given.images} images are too few for {given.classes} classes")
    height, width = given.size
    return Recipe(
        classes=given.classes,
        images=given.images,
        height=height,
        width=width,
        seed=given.seed,
        encoding=given.encoding,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.datasets.make",
        description="Make a small data set of generated images (Pillow; lmdb for an LMDB).",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where; it must not be there yet")
    formats = (ImageFolder.backend, caffe_lmdb.CaffeLmdb.backend)
    parser.add_argument("--format", choices=formats, default=formats[0], help="how it is stored")
    parser.add_argument("--classes", type=_count, default=10, help="how many labels")
    parser.add_argument("--images", type=_count, default=1000, help="how many images, in all")
    parser.add_argument("--size", type=_size, default="256", help="pixels: 256, or 240x320 (H x W)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same images")
    encodings = (*SUFFIXES, "raw")
    parser.add_argument("--encoding", choices=encodings, default="jpeg", help="raw: LMDB only")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    return _count(height), _count(width or height)


if __name__ == "__main__":
    sys.exit(main())
