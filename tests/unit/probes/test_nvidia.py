"""NVIDIA devices: absent where there is no driver; PerfZero's choice where there are several."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from perfrun.probes.nvidia import main_model, nvidia_accelerators


class NVMLError(Exception):
    """The library's error."""


def library(names: list[Any], driver: Any = "570.86", fails_at: str = "") -> ModuleType:
    """A library for a machine with these devices; every call that is made is counted."""
    module = ModuleType("pynvml")
    calls: list[str] = []

    def answering(name: str, answer: Any) -> Any:
        def call(*arguments: Any) -> Any:
            calls.append(name)
            if name == fails_at:
                raise NVMLError("Driver/library version mismatch")
            return answer(*arguments)

        return call

    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: len(names),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: names[handle],
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=2**30 + handle),
        "nvmlSystemGetDriverVersion": lambda: driver,
    }
    vars(module).update({name: answering(name, answer) for name, answer in answers.items()})
    vars(module).update(NVMLError=NVMLError, calls=calls)
    return module


def install(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    """Put the binding in place, on a machine whose driver library can be loaded."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: name)
    monkeypatch.setitem(sys.modules, "pynvml", module)


def test_the_real_library_agrees_with_the_driver_of_this_machine() -> None:
    # With the real nvidia-ml-py: None without a driver, devices with one.
    assert (nvidia_accelerators() is not None) is Path("/dev/nvidia0").exists()


def test_devices_are_told_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    module = library(["NVIDIA H200", "NVIDIA H200"])
    install(monkeypatch, module)
    found = nvidia_accelerators()
    assert found is not None
    assert (found.model, found.count, found.driver_version) == ("NVIDIA H200", 2, "570.86")
    assert found.models == ("NVIDIA H200",) * 2
    assert found.memory_bytes == (2**30, 2**30 + 1)
    assert vars(module)["calls"][-1] == "nvmlShutdown"


def test_old_libraries_answer_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, library([b"Tesla V100"], driver=b"450.80"))
    found = nvidia_accelerators()
    assert found is not None
    assert (found.model, found.driver_version) == ("Tesla V100", "450.80")


def test_without_a_driver_the_binding_is_not_even_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    module = library(["NVIDIA H200"])
    install(monkeypatch, module)
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert nvidia_accelerators() is None
    assert vars(module)["calls"] == []


def test_no_device_is_absent_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, library([]))
    assert nvidia_accelerators() is None


@pytest.mark.parametrize(
    "fails_at",
    ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetName", "nvmlSystemGetDriverVersion"],
)
def test_a_library_that_fails_is_no_device(monkeypatch: pytest.MonkeyPatch, fails_at: str) -> None:
    module = library(["H200"], fails_at=fails_at)
    install(monkeypatch, module)
    assert nvidia_accelerators() is None
    started = fails_at != "nvmlInit"
    assert ("nvmlShutdown" in vars(module)["calls"]) is started


def test_a_device_that_shares_the_hosts_memory_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, library(["NVIDIA GB10"], fails_at="nvmlDeviceGetMemoryInfo"))
    found = nvidia_accelerators()
    assert found is not None
    assert (found.model, found.memory_bytes) == ("NVIDIA GB10", (None,))


def test_a_library_that_cannot_be_imported_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    assert nvidia_accelerators() is None


@pytest.mark.parametrize(
    ("models", "chosen"),
    [
        (("A100",), "A100"),
        (("A100", "V100"), "A100"),
        (("Quadro P1000", "A100", "V100"), "A100"),  # PerfZero's rule
        (("Quadro P1000",), "Quadro P1000"),
        (("A100", "Quadro P1000"), "A100"),
    ],
)
def test_the_model_is_the_first_that_is_not_there_for_the_screen(
    models: tuple[str, ...], chosen: str
) -> None:
    assert main_model(models) == chosen
