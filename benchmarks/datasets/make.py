"""Make a small data set of generated images: `python -m benchmarks.datasets.make FOLDER`.

Nothing is downloaded. A folder has its final name only when the data set in it is whole.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.datasets import caffe_lmdb, datum, generate
from benchmarks.datasets.defect import DataError
from benchmarks.datasets.generate import Recipe
from benchmarks.datasets.image_folder import ImageFolder

ABOUT = "dataset.json"  # beside the images: the recipe


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what the command line describes; exit status 2 for what cannot be made."""
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
        path.write_bytes(generate.encoded(recipe, image))


def _write_lmdb(folder: Path, recipe: Recipe) -> None:
    # Address space, not disk: the file grows as records are written.
    map_size = 2 * recipe.images * (3 * recipe.height * recipe.width + 8192) + 2**24
    environment = caffe_lmdb.library().open(str(folder), map_size=map_size)
    with environment, environment.begin(write=True) as transaction:
        for number, (label, name, image) in enumerate(_images(recipe)):
            record = datum.Datum(
                channels=3,
                height=recipe.height,
                width=recipe.width,
                data=generate.encoded(recipe, image),
                label=label,
                encoded=recipe.encoding != "raw",
            )
            key = f"{number:08d}_{recipe.class_name(label)}/{name}"
            transaction.put(key.encode(), datum.encode(record))


def _images(recipe: Recipe) -> Iterator[tuple[int, str, Any]]:
    """Label, file name and image of each, in the order in which an image_folder numbers them."""
    suffix = generate.SUFFIXES.get(recipe.encoding, "")
    for label in range(recipe.classes):
        for number in range(recipe.count(label)):
            yield label, f"{number:08d}{suffix}", generate.picture(recipe, label, number)


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
    encodings = (*generate.SUFFIXES, "raw")
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
