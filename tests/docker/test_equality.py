"""The same method, in a container and in an interpreter of this machine: the same document."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from actors import PASSIVE, REPOSITORY, Caller, Completed
from engines import Site, both_engines

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]

METHODS = {
    "torch": "benchmarks.torch.efficientnet.EfficientNetB0.inference",
    "tensorflow": "benchmarks.tensorflow.efficientnet.EfficientNetB0.inference",
}
# What says where a trial ran; all else has the same keys everywhere.
PERFZERO_PROCESS_INFO = {"max_rss", "max_vms", "max_cpu_percent"}
PLACE_ONLY = (
    ("setup_info",),  # of the image, if there is one
    ("benchmark_info", "flags"),  # --python and --workspace
    ("benchmark_info", "harness_info"),  # of a clone, if it is one
    ("process_info",),  # without what the kernel does not tell there; see below
    ("perfrun", "container"),
    ("perfrun", "environment", "distributions"),
)


@pytest.fixture(scope="session")
def documents_of_this_machine(place: Path) -> dict[str, dict[str, Any]]:
    return {}


@pytest.fixture(params=sorted(METHODS))
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def here(
    framework: str,
    place: Path,
    documents_of_this_machine: dict[str, dict[str, Any]],
    request: pytest.FixtureRequest,
) -> dict[str, Any]:
    """The document of a run without any container."""
    if framework not in documents_of_this_machine:
        python = request.getfixturevalue(f"{framework}_python")
        ourselves = Caller(
            uid=os.geteuid(),
            gid=os.getegid(),
            groups=tuple(os.getgroups()),
            home=place,
            harness_python=sys.executable,
        )
        with tempfile.TemporaryDirectory(dir=place) as workspace:
            done = ourselves.perfrun(
                REPOSITORY,
                f"--workspace={workspace}",
                f"--python={python}",
                f"--benchmark_methods={METHODS[framework]}",
                PASSIVE,
                "--format=json",
                cwd=place,
            )
            assert done.returncode == 0, done.stderr
            documents_of_this_machine[framework] = only_summary(Path(workspace))
    return documents_of_this_machine[framework]


def run_by_compose(site: Site, framework: str, workspace: Path) -> Completed:
    service = {"torch": "perfrun", "tensorflow": "tensorflow"}[framework]
    return site.user.compose(
        site.checkout,
        *("run", "--rm", service, f"--benchmark_methods={METHODS[framework]}"),
        *(PASSIVE, "--format=json"),
        PERFRUN_WORKSPACE=str(workspace),
    )


def run_by_launcher(site: Site, framework: str, workspace: Path) -> Completed:
    return site.user.perfrun(
        site.checkout,
        f"--image={site.image(framework)}",
        f"--workspace={workspace}",
        f"--benchmark_methods={METHODS[framework]}",
        PASSIVE,
        "--format=json",
        cwd=workspace,
    )


@pytest.fixture(params=[run_by_compose, run_by_launcher])
def in_container(
    request: pytest.FixtureRequest, framework: str, site: Site, workspace: Path
) -> dict[str, Any]:
    """The document of a run in the image that `setup.py` has built for this framework."""
    site.image(framework)
    done = request.param(site, framework, workspace)
    assert done.returncode == 0, done.stderr
    assert site.user.owns(workspace)
    return only_summary(workspace)


def only_summary(workspace: Path) -> dict[str, Any]:
    (path,) = (workspace / "output").glob("*/perfzero_summary.json")
    document = json.loads(path.read_text("utf-8"))
    assert isinstance(document, dict)
    return document


def keys(value: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Every path of keys in a document, without those that depend on the place."""
    is_reason = path[-1:] == ("reasons",)  # why something could not be had in this place
    if path in PLACE_ONLY or is_reason or not isinstance(value, dict):
        return {path}
    return {path}.union(*(keys(each, (*path, key)) for key, each in value.items()))


def metrics(document: dict[str, Any]) -> dict[str, Any]:
    """By name, without what a series has only from some length on, so if there was time for it:
    percentiles and the interval of the median.
    """
    found = {metric["name"]: metric for metric in document["benchmark_result"]["metrics"]}
    of_length = re.compile(r"latency_(p\d+|median_(low|high))_s")
    return {name: each for name, each in found.items() if not of_length.fullmatch(name)}


def reports(document: dict[str, Any]) -> list[set[str]]:
    """What each report holds; how often a step was run is a matter of time too."""
    return [set(report) for report in document["perfrun"]["reports"]]


@both_engines
def test_a_container_changes_nothing_but_where_it_ran(
    here: dict[str, Any], in_container: dict[str, Any]
) -> None:
    assert keys(in_container) == keys(here)
    assert list(in_container) == list(here)
    for document in (here, in_container):
        assert document["perfrun"]["outcome"]["status"] == "passed"
        assert document["benchmark_result"]["wall_time"] > 0
        assert document["process_info"].keys() >= PERFZERO_PROCESS_INFO
    assert list(metrics(in_container)) == list(metrics(here))
    assert metrics(in_container)["parameters"] == metrics(here)["parameters"]
    for key in ("name", "version"):
        assert in_container["ml_framework_info"][key] == here["ml_framework_info"][key]
    assert reports(in_container) == reports(here)
