"""The checks of a GPU day: what each asks, what is expected, and how long it may take."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_day import judging
from gpu_day.asking import Asking, Unanswered, ask_driver
from gpu_day.judging import Answer, Verdict


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question to the device."""

    name: str
    expectation: str
    ask: Callable[[Asking], dict[str, Any]]  # raises Unanswered
    judge: Callable[[Answer], Verdict]
    limit_s: float
    needs: str = "torch"  # driver, the name of a framework, or engine
    rehearsed: bool = True  # its commands also run on the CPU


def _case(name: str, framework: str = "torch") -> Callable[[Asking], dict[str, Any]]:
    return lambda asking: {"trial": asking.case(name, framework)}


def _devices(asking: Asking) -> dict[str, Any]:
    return {**ask_driver(), "frameworks": dict(asking.facts)}


def _mig(asking: Asking) -> dict[str, Any]:  # noqa: ARG001 - every question takes the means
    return ask_driver()


def _model(asking: Asking, *knobs: str) -> dict[str, Any]:
    words = (f"--device={asking.device}", *knobs)
    return asking.trial("benchmarks.torch.model.Model.run", "--", *words)


def _small(asking: Asking, on_device: str, on_cpu: str) -> str:
    return on_device if asking.device == "cuda" else on_cpu


def _float16(asking: Asking) -> dict[str, Any]:
    knobs = (
        *("--forward_only=false", "--dtype=float16", "--data=synthetic/device"),
        *(_small(asking, "--model=resnet50", "--model=deep_mnist"), "--num_batches=20"),
        _small(asking, "--batch_size=32", "--batch_size=4"),
    )
    return {"trial": _model(asking, *knobs)}


def _compiled(asking: Asking) -> dict[str, Any]:
    knobs = (
        *("--forward_only=true", "--data=synthetic/device", "--num_batches=50"),
        _small(asking, "--model=resnet18", "--model=deep_mnist"),
        _small(asking, "--batch_size=32", "--batch_size=4"),
    )
    return {
        name: _model(asking, *knobs, f"--compile={mode}")
        for name, mode in (("eager", "eager"), ("compiled", "default"))
    }


def _beside_a_loop(asking: Asking) -> dict[str, Any]:
    knobs = (
        f"--device={asking.device}",
        *("--data=synthetic/device", _small(asking, "--batch_size=32", "--batch_size=2")),
        _small(asking, "--num_batches=50", "--num_batches=3"),
    )
    shipped = asking.trial("benchmarks.torch.resnet.ResNet18.inference", "--", *knobs)
    return {"shipped": shipped, "by_hand": asking.case("resnet18_by_hand")}


def _dlbs(asking: Asking) -> dict[str, Any]:
    import sys

    output = asking.command(
        [
            *(sys.executable, "-m", "perfrun.dlbs", "--quiet"),
            *(f"--python={asking.pythons['torch']}", f"--workspace={asking.folder / 'workspace'}"),
            *(_small(asking, "--model=resnet18", "--model=deep_mnist"), "--forward_only=true"),
            *(f"--device={_small(asking, 'gpu', 'cpu')}", "--num_batches=10", "--batch_size=16"),
        ],
        statuses=(0, 1),
    )
    return {"lines": dlbs_lines(output)}


def dlbs_lines(output: str) -> dict[str, Any]:
    """Return DLBS' lines, `__key__=JSON`, by key; those that are no JSON are left out."""
    found = {}
    for line in output.splitlines():
        key, equals, value = line.strip().partition("__=")
        if equals and key.startswith("__"):
            try:
                found[key[2:]] = json.loads(value)
            except ValueError:
                continue
    found.pop("results.time_data", None)
    return found


def _containers(asking: Asking) -> dict[str, Any]:
    if not asking.image:
        raise Unanswered("no image was named with --image")
    trial = asking.trial(
        "benchmarks.torch.model.Model.run",
        *(f"--image={asking.image}", "--gpus=all", "--"),
        *("--model=deep_mnist", "--device=cuda", "--forward_only=true"),
    )
    return {"trial": trial}


# The quick and most telling ones come first: what is cut off by the clock is at the end.
CHECKS = (
    Check(
        name="devices",
        expectation="the driver names its devices, and a framework sees all of them",
        ask=_devices,
        judge=judging.devices,
        limit_s=20,
        needs="driver",
        rehearsed=False,
    ),
    Check(
        name="mig",
        expectation="the MIG mode of each device, read only; no change is pending",
        ask=_mig,
        judge=judging.mig,
        limit_s=20,
        needs="driver",
        rehearsed=False,
    ),
    Check(
        name="synchronisation",
        expectation="perfrun's clock and CUDA events agree; a launch alone is far shorter",
        ask=_case("synchronisation"),
        judge=judging.synchronisation,
        limit_s=60,
    ),
    Check(
        name="memory_peaks",
        expectation="the summary's peaks are the allocator's; NVML's are a context above them",
        ask=_case("memory"),
        judge=judging.memory_peaks,
        limit_s=45,
    ),
    Check(
        name="power_energy",
        expectation="NVML's energy counter is the integral of its power, under load",
        ask=_case("load"),
        judge=judging.energy,
        limit_s=45,
    ),
    Check(
        name="two_streams",
        expectation="a step is over when all its streams are",
        ask=_case("two_streams"),
        judge=judging.two_streams,
        limit_s=60,
    ),
    Check(
        name="beside_a_loop",
        expectation="time and device peak of ResNet-18 are those of a loop written by hand",
        ask=_beside_a_loop,
        judge=judging.beside_a_loop,
        limit_s=90,
    ),
    Check(
        name="float16",
        expectation="no timed step of float16 training updates nothing",
        ask=_float16,
        judge=judging.float16,
        limit_s=60,
    ),
    Check(
        name="pinned_copies",
        expectation="pinned memory is copied 1.2 times as fast as pageable, or more",
        ask=_case("copies"),
        judge=judging.copies,
        limit_s=45,
    ),
    Check(
        name="dlbs_rows",
        expectation="DLBS' lines name the device and have figures that agree",
        ask=_dlbs,
        judge=judging.dlbs,
        limit_s=60,
    ),
    Check(
        name="jax",
        expectation="perfrun waits for JAX' device as block_until_ready does",
        ask=_case("synchronisation", "jax"),
        judge=judging.jax,
        limit_s=60,
        needs="jax",
    ),
    Check(
        name="compile",
        expectation="torch.compile works, and is not slower than eager execution",
        ask=_compiled,
        judge=judging.compiled,
        limit_s=150,
    ),
    Check(
        name="containers",
        expectation="a trial in a container that was given --gpus runs on a device",
        ask=_containers,
        judge=judging.containers,
        limit_s=90,
        needs="engine",
        rehearsed=False,
    ),
)
