"""Data sets on disk: what was made is read, and a broken one is an error of one line."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from image_sets import ROOT, make, run_code

pytestmark = pytest.mark.torch  # for Pillow and lmdb, which its environment has

READ = """
import hashlib, json, sys
from pathlib import Path
from benchmarks._support.datasets.loading import open_source
found = {}
for folder in sys.argv[1:]:
    source = open_source(folder, None)
    images = [source.image(number) for number in range(len(source))]
    found[Path(folder).name] = {
        "backend": source.backend,
        "classes": source.classes,
        "labels": [label for _, label in images],
        "sizes": sorted({image.size for image, _ in images}),
        "pixels": [hashlib.sha256(image.tobytes()).hexdigest() for image, _ in images],
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def sets(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six images of two classes, 20 x 30 pixels, in each way of storing them."""
    folder = tmp_path_factory.mktemp("sets")
    for name, kind, encoding in (
        ("folder", "image_folder", "png"),
        ("jpeg", "image_folder", "jpeg"),
        ("lmdb", "caffe_lmdb", "png"),
        ("lmdb_jpeg", "caffe_lmdb", "jpeg"),
        ("raw", "caffe_lmdb", "raw"),
    ):
        arguments = f"--format={kind} --encoding={encoding} --classes=2 --images=6 --size=20x30"
        done = make(torch_python, folder / name, *arguments.split())
        assert done.returncode == 0, done.stderr
    return folder


def test_every_format_holds_the_same_images_and_labels(sets: Path, torch_python: str) -> None:
    names = ("folder", "jpeg", "lmdb", "lmdb_jpeg", "raw")
    found = json.loads(run_code(torch_python, READ, *(str(sets / name) for name in names)))
    assert {one["backend"] for one in found.values()} == {"image_folder", "caffe_lmdb"}
    assert found["folder"]["classes"] == ["class_0", "class_1"]
    for name in names:
        assert found[name]["labels"] == [0, 0, 0, 1, 1, 1]
        assert found[name]["sizes"] == [[30, 20]]
    pixels = found["folder"]["pixels"]
    assert len(set(pixels)) == 6
    assert found["lmdb"]["pixels"] == pixels  # PNG and raw lose nothing
    assert found["raw"]["pixels"] == pixels
    assert found["jpeg"]["pixels"] == found["lmdb_jpeg"]["pixels"] != pixels


def test_the_labels_are_those_of_torchvision(sets: Path, torch_python: str) -> None:
    code = """
import sys
from benchmarks._support.datasets.loading import open_source
from benchmarks.torch._support.libraries import torchvision
torchvision.load()
from torchvision.datasets import ImageFolder
theirs, ours = ImageFolder(sys.argv[1]), open_source(sys.argv[1], "image_folder")
assert theirs.samples == list(zip(ours.files, ours.labels)), (theirs.samples, ours.files)
assert tuple(theirs.classes) == ours.classes
assert all(theirs[n][0].tobytes() == ours.image(n)[0].tobytes() for n in range(len(ours)))
"""
    run_code(torch_python, code, str(sets / "jpeg"))


def test_the_seed_decides_the_pixels_and_the_recipe_lies_beside_them(
    sets: Path, torch_python: str, tmp_path: Path
) -> None:
    same, other = tmp_path / "same", tmp_path / "other"
    arguments = ("--encoding=png", "--classes=2", "--images=6", "--size=20x30")
    assert make(torch_python, same, *arguments).returncode == 0
    assert make(torch_python, other, *arguments, "--seed=1").returncode == 0
    first = "class_0/00000000.png"
    assert (same / first).read_bytes() == (sets / "folder" / first).read_bytes()
    assert (same / first).read_bytes() != (other / first).read_bytes()
    assert json.loads((other / "dataset.json").read_text()) == {
        "format": "image_folder",
        "classes": 2,
        "images": 6,
        "height": 20,
        "width": 30,
        "seed": 1,
        "encoding": "png",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--encoding=raw",), "encoding raw is for caffe_lmdb"),
        (("--images=3",), "3 images are too few for 10 classes"),
        (("--size=0",), "argument --size: 0 is less than 1"),
    ],
)
def test_what_cannot_be_made_leaves_nothing_behind(
    arguments: tuple[str, ...], said: str, torch_python: str, tmp_path: Path
) -> None:
    done = make(torch_python, tmp_path / "set", *arguments)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(torch_python: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = make(torch_python, tmp_path, "--images=10")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("name another folder")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_killed_maker_leaves_no_folder_of_the_final_name(
    torch_python: str, tmp_path: Path
) -> None:
    code = """
import sys
from pathlib import Path
from benchmarks.datasets import make
def picture(recipe, label, number, real=make.picture):
    assert list(Path(sys.argv[1]).parent.glob(".*.partial")), "not written aside"
    import os
    return real(recipe, label, number) if number < 2 else os._exit(9)
make.picture = picture
make.main([sys.argv[1], "--images=30", "--size=8"])
"""
    done = subprocess.run([torch_python, "-c", code, str(tmp_path / "set")], cwd=ROOT)
    assert done.returncode == 9
    assert not (tmp_path / "set").exists()


OPEN_ALL = """
import json, sys
from benchmarks._support.datasets.loading import open_source
said = []
for folder, backend in json.loads(sys.argv[1]):
    try:
        source = open_source(folder, backend)
        said.append([source.image(number)[1] for number in range(len(source))])
    except ValueError as error:
        said.append(str(error))
print(json.dumps(said))
"""


def test_every_kind_of_bad_data_has_one_clear_line(
    sets: Path, torch_python: str, tmp_path: Path
) -> None:
    empty, flat, hollow, broken, cut, torn, odd = (
        tmp_path / name for name in ("empty", "flat", "hollow", "broken", "cut", "torn", "odd")
    )
    for folder in (empty, flat, hollow / "a", torn, odd):
        folder.mkdir(parents=True)
    shutil.copy(sets / "jpeg/class_0/00000000.jpg", flat)
    shutil.copytree(sets / "jpeg", broken)
    image = broken / "class_1/00000001.jpg"
    image.write_bytes(image.read_bytes()[:300])
    shutil.copytree(sets / "raw", cut)
    with (cut / "data.mdb").open("r+b") as file:
        file.truncate((cut / "data.mdb").stat().st_size - 4096)
    (torn / "data.mdb").write_bytes(b"x" * 20_000)
    code = """
import lmdb, sys
with lmdb.open(sys.argv[1]) as environment, environment.begin(write=True) as transaction:
    transaction.put(b"key", b"\\x22\\x05ab")
"""
    run_code(torch_python, code, str(odd))
    cases = {
        (str(empty), None): "no data set; it is empty",
        (str(empty), "caffe_lmdb"): "no data.mdb in it",
        (str(flat), None): "1 images, but no class folders",
        (str(hollow), None): f"{hollow}/a: a class folder without images",
        (str(broken), None): f"{image}: not a whole image",
        (str(cut), None): "truncated",
        (str(torn), None): "20000 bytes, but no LMDB that can be read",
        (str(odd), None): "record 'key': not a Datum, it ends in the middle of a field",
        (str(tmp_path / "absent"), None): "does not exist",
        (str(image), None): "is not a folder",
        (None, None): "data_dir is not given",
        (str(sets / "jpeg"), "caffe_lmdb"): "holds class folders, but data_backend is caffe_lmdb",
        (str(sets / "raw"), "image_folder"): "holds an LMDB (data.mdb), but data_backend is image",
    }
    said = json.loads(run_code(torch_python, OPEN_ALL, json.dumps(list(cases))))
    for line, expected in zip(said, cases.values(), strict=True):
        assert expected in line
        assert "\n" not in line
