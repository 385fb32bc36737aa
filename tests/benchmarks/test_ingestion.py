"""Images from disk in PyTorch and TensorFlow: what arrives, what is broken, and the three rates."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from image_sets import ROOT, make, run_code

FRAMEWORKS = [
    pytest.param("torch", marks=pytest.mark.torch),
    pytest.param("tensorflow", marks=pytest.mark.tensorflow),
]
SIZE = 32  # pixels
PNG = ("--encoding=png", f"--size={SIZE}", "--classes=3", "--images=10")


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def python(framework: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{framework}_python"))


@pytest.fixture(scope="module")
def sets(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten images of three classes as a folder, as an LMDB of PNG files, and of raw pixels."""
    folder = tmp_path_factory.mktemp("sets")
    for name, *arguments in (
        ("folder",),
        ("lmdb", "--format=caffe_lmdb"),
        ("raw", "--format=caffe_lmdb", "--encoding=raw"),
    ):
        done = make(python, folder / name, *PNG, *arguments)
        assert done.returncode == 0, done.stderr
    shutil.copytree(folder / "folder", folder / "broken")
    image = folder / "broken/class_2/00000001.png"
    image.write_bytes(image.read_bytes()[:200])
    return folder


ARRIVES = """
import importlib, json, sys
import numpy as np
from benchmarks._support.datasets import pictures
from benchmarks._support.datasets.loading import open_chosen, open_source
from benchmarks._support.knobs import Settings
framework, folder = sys.argv[1:]
loading = importlib.import_module(f"benchmarks.{framework}._support.loader")

def opened(name, shape=(3, 32, 32), **knobs):
    classes = knobs.pop("classes", None)
    settings = Settings(data_dir=name, num_loader_threads=2, **knobs)
    return loading.Loader(open_chosen(settings, folder), settings, shape, 4, classes=classes)

def expected(images, number):
    image, label = images.image(number)
    pixels = np.asarray(image, np.float32) / 255
    return (pixels - pictures.MEAN[3]) / pictures.DEVIATION[3], label

def channels_last(images):
    images = np.asarray(images)
    return images.transpose(0, 2, 3, 1) if framework == "torch" else images

stored = open_source(f"{folder}/folder", None)
for name in ("folder", "lmdb", "raw"):
    loader = opened(name)
    # Ten images in batches of four: the third batch has two of the next epoch.
    for batch in range(5):
        images, labels = next(loader)
        assert images.shape[0] == 4
        for position, image in enumerate(channels_last(images)):
            pixels, label = expected(stored, (4 * batch + position) % 10)
            assert abs(image - pixels).max() < 1e-5, (name, batch, position)
            assert int(labels[position]) == label, (name, batch, position)
    loader.close()

def read(count, **knobs):
    loader = opened("folder", data_shuffle=True, **knobs)
    labels = [int(label) for _ in range(count) for label in next(loader)[1]]
    loader.close()
    return labels

shuffled = read(5)
assert sorted(shuffled[:10]) == sorted(shuffled[10:]) == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2], shuffled
assert shuffled[:10] != sorted(shuffled[:10])

loader = opened("lmdb", shape=(1, 16, 24))
images, _ = next(loader)
assert channels_last(images).shape == (4, 16, 24, 1)
loader.close()

def refused(**knobs):
    try:
        loader = opened(**knobs)
        for _ in range(9):
            next(loader)
        return "taken"
    except ValueError as error:
        return str(error)

import multiprocessing
found = {
    "broken": refused(name="broken"),
    "few": refused(name="folder", classes=2),
    "few_lmdb": refused(name="raw", classes=2),
    "text": refused(name="folder", shape=(128,)),
    "absent": refused(name="nowhere"),
    "backend": refused(name="raw", data_backend="image_folder"),
    "left": len(multiprocessing.active_children()),
}
"""

MODEL = """
import weakref
from benchmarks._support.datasets import feeding
Model = importlib.import_module(f"benchmarks.{framework}.model").Model

class Watched(Model):
    "What lies in memory beside the batches that are fed, when the steps have been timed."
    def _built(self, way, batch_size):
        job = super()._built(way, batch_size)
        self.made_up = len(job.arguments)
        return job

batches, following = [], loading.Loader.__next__
def watched(loader):
    batch = following(loader)
    batches.append(weakref.ref(batch[0]))
    return batch
loading.Loader.__next__ = watched
from benchmarks._support.models import job
counted = found["counted"] = {}
fixed = {"model": "resnet18", "input_shape": "3x32x32", "batch_size": 4, "iterations": 2,
         "num_loader_threads": 1, "warmup": 1}
for name, method, knobs in (
    ("training", "training", {"data_dir": "folder"}),
    ("inference", "run", {"data_dir": "raw", "forward_only": True, "data": "synthetic"}),
    ("loader", "run", {"data_dir": "folder", "data_loader_only": True}),
    ("synthetic", "inference", {"data_shuffle": False}),
    ("no_data", "run", {"data_loader_only": True}),
):
    model = Watched(root_data_dir=folder, **{**fixed, **knobs})
    def report_benchmark(**report):
        held = sum(one() is not None for one in batches)
        found.update({name: {**report, "made_up": model.made_up, "held": held}})
    def count_afterwards(function, arguments, **rest):
        work = job.companion({**arguments, "class": [Model.__module__, "Model"]}, ["work"], None, 1)
        counted[name] = work["work"]["flops_per_example"]
    model.report_benchmark, model.count_afterwards = report_benchmark, count_afterwards
    try:
        getattr(model, method)()
    except ValueError as error:
        found[name] = str(error)
# Neither the folder nor the model is there: the folder is looked for before a model is built.
for module, method in (("model", "Model.training"), ("ingestion", "Ingestion.all_three")):
    name, method = method.split(".")
    cls = getattr(importlib.import_module(f"benchmarks.{framework}.{module}"), name)
    try:
        getattr(cls(root_data_dir=folder, data_dir="nowhere", model="no_such_model"), method)()
    except ValueError as error:
        found[f"first_{name}"] = str(error)
print(json.dumps(found))
"""


def test_what_is_on_disk_arrives_feeds_any_model_and_is_refused_in_a_line(
    framework: str, python: str, sets: Path
) -> None:
    # One process for all: importing a framework takes longest.
    printed = run_code(python, ARRIVES + MODEL, framework, str(sets))
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    assert_bad_data_says_so_in_a_line(found, sets)
    assert_a_model_takes_a_data_set(found)


def assert_bad_data_says_so_in_a_line(said: dict[str, Any], sets: Path) -> None:
    image = sets / "broken/class_2/00000001.png"
    assert said["broken"].startswith(f"{image}: not a whole image (")
    assert said["few"].endswith("has label 2, but the model has 2 classes")
    assert said["few_lmdb"].endswith("has label 2, but the model has 2 classes")
    assert said["text"].startswith("input 128 is no image")
    assert said["absent"].endswith(
        "nowhere: does not exist; data_dir names the folder of a data set"
    )
    assert said["first_Model"] == said["first_Ingestion"] == said["absent"]
    assert "holds an LMDB (data.mdb), but data_backend is image_folder" in said["backend"]
    assert not [line for line in said.values() if isinstance(line, str) and "\n" in line]
    assert said["left"] == 0, "processes of a loader go on"


def test_a_run_of_perfrun_reports_three_rates_and_their_ratio(
    framework: str, python: str, sets: Path, tmp_path: Path
) -> None:
    method = f"benchmarks.{framework}.ingestion.Ingestion.all_three"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "perfrun", f"--workspace={tmp_path}", f"--python={python}"),
            *(f"--benchmark_methods={method}", "--format=json", "--"),
            *(f"--data_dir={sets / 'lmdb'}", "--model=resnet18", f"--input_shape=3x{SIZE}x{SIZE}"),
            *("--batch_size=4", "--num_loader_threads=1", "--iterations=12", "--seed=3"),
            "--intra_threads=1",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)["results"]
    summary = json.loads(Path(result["summary"]).read_text(encoding="utf-8"))
    report = summary["benchmark_result"]
    metrics = {metric["name"]: metric["value"] for metric in report["metrics"]}
    extras = {extra["name"]: extra["value"] for extra in report["extras"]}
    loader, device = metrics["loader_images_per_second"], metrics["device_images_per_second"]
    end_to_end = metrics["end_to_end_images_per_second"]
    assert min(loader, device, end_to_end) > 0
    assert metrics["ingestion_efficiency"] == pytest.approx(end_to_end / min(loader, device))
    assert metrics["loader_over_device"] == pytest.approx(loader / device)
    assert extras["bottleneck"] == ("loader" if loader < device else "device")
    # What waits for both is no faster than the device alone: by the shortest of twelve steps, which
    # has to be disturbed in all of them to be wrong.
    shortest_s = {
        part: min(
            series["statistics"]["min_s"]
            for series in summary["perfrun"]["series"]
            if re.fullmatch(rf"{part}(_\d)?", series["name"])
        )
        for part in ("device", "end_to_end")
    }
    assert shortest_s["end_to_end"] > shortest_s["device"] / 3
    assert 0 <= metrics["data_wait_share"] <= 1
    assert extras["end_to_end_timed_batches"] == 12
    assert extras["rounds"] == 3
    assert extras["data_backend"] == "caffe_lmdb"
    assert extras["data_images"] == 10
    assert extras["seed"] == 3
    assert extras["epoch_turnover"].startswith("none")
    # Each part of each round is a series of its own in the summary.
    names = [series["name"] for series in summary["perfrun"]["series"]]
    assert sorted(names) == sorted(
        f"{part}{suffix}"
        for part in ("loader", "device", "end_to_end")
        for suffix in ("", "_2", "_3")
    )


def assert_a_model_takes_a_data_set(said: dict[str, Any]) -> None:
    def names(run: str) -> set[str]:
        return {metric["name"] for metric in said[run]["metrics"]}

    of_both = {"end_to_end_images_per_second", "data_wait_share"}
    counted = said["counted"]
    assert set(counted) == {"training", "inference", "synthetic"}
    assert counted["inference"] == counted["synthetic"], "a data set changes no arithmetic"
    assert 2.5 * counted["inference"] < counted["training"] < 3 * counted["inference"]
    assert of_both | {"final_loss"} <= names("training")
    assert of_both <= names("inference")
    assert said["training"]["extras"]["data"] == "data_dir"
    assert said["training"]["extras"]["data_images"] == 10
    assert said["training"]["extras"]["warmup"] >= 2  # what lay ready was taken first
    note = "without effect: data; input is a data set"
    assert said["inference"]["extras"]["data_note"] == note
    in_memory = [said[run]["made_up"] for run in ("training", "inference", "loader", "synthetic")]
    assert in_memory == [0, 0, 0, 1], "no synthetic batch lies beside a data set"
    assert said["training"]["held"] == said["inference"]["held"] == 0, "nor one of the data set's"
    assert names("loader") == {"loader_images_per_second", "loader_first_call_s"}
    assert not of_both & names("synthetic")
    assert said["synthetic"]["extras"]["data_note"].endswith("there is no data_dir")
    assert said["no_data"] == "data_loader_only needs data_dir, the folder of a data set"
