"""GPUs in containers, by a machine's files and `docker info`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfrun.image.gpus import (
    Access,
    AmdGpu,
    Vendor,
    choose_access,
    parse_cdi_spec,
    parse_driver_version,
    parse_engine_cdi,
    read_amd_gpus,
    read_gpu_support,
)

# As `nvidia-ctk cdi generate` writes it (1.17), shortened; keys sorted, so `kind` comes late.
CDI_YAML = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-ctk
    name: not-a-device
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      name: not-a-device-either
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: all
kind: nvidia.com/gpu
"""
INDENTED_YAML = """kind: "amd.com/gpu"
devices:
  - name: all
    containerEdits: {}
  - name: '1'
"""
RUNTIME = {"ServerVersion": "27.0", "Runtimes": {"runc": {}, "nvidia": {"path": "x"}}}
CDI_ENGINE = {
    "ServerVersion": "28.3",
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    "Runtimes": {"runc": {}},
}


def put(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a GPU and its driver, and nothing for containers."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    put(tmp_path, "dev/nvidia0")
    put(tmp_path, "dev/nvidia1")
    put(tmp_path, "dev/nvidiactl")
    put(tmp_path, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX  535.104.05  Sat\nGCC\n")
    return tmp_path


def install_toolkit(root: Path) -> None:
    put(root, "bin/nvidia-ctk", "#!/bin/sh\n")
    (root / "bin/nvidia-ctk").chmod(0o755)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\nGCC 12",
            "535.104.05",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build",
            "570.86.10",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65  x", "580.65"),
        ("", None),
        ("nonsense 1.2\n", None),
    ],
)
def test_the_driver_version_is_that_of_the_kernel_module(text: str, version: str | None) -> None:
    assert parse_driver_version(text) == version


def test_cdi_names_are_those_of_the_devices_and_of_nothing_else() -> None:
    assert parse_cdi_spec(CDI_YAML) == ("nvidia.com/gpu=0", "nvidia.com/gpu=all")
    assert parse_cdi_spec(INDENTED_YAML) == ("amd.com/gpu=all", "amd.com/gpu=1")
    spec = {"kind": "nvidia.com/gpu", "devices": [{"name": "all"}]}
    assert parse_cdi_spec(json.dumps(spec)) == ("nvidia.com/gpu=all",)


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"devices": 1, "kind": "k"}', "\0\n:"])
def test_a_cdi_file_that_is_not_understood_names_no_device(text: str) -> None:
    assert parse_cdi_spec(text) == ()


def test_a_new_engine_reports_the_devices_that_it_found() -> None:
    devices = [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}, {"Source": "other", "ID": "x"}]

    assert parse_engine_cdi({**CDI_ENGINE, "DiscoveredDevices": devices}) == (
        True,
        ("nvidia.com/gpu=0",),
    )
    assert parse_engine_cdi({"CDISpecDirs": None, "DiscoveredDevices": None}) == (False, ())


def test_a_machine_without_a_gpu_has_none_and_lacks_nothing(tmp_path: Path) -> None:
    found = read_gpu_support(RUNTIME, root=tmp_path)

    assert (found.vendor, found.access, found.why_not, found.device_files) == (None, None, None, ())


def test_the_nvidia_runtime_gives_access(nvidia: Path) -> None:
    found = read_gpu_support(RUNTIME, root=nvidia)

    assert found.vendor is Vendor.NVIDIA
    assert (found.device_files, found.driver_version) == (("nvidia0", "nvidia1"), "535.104.05")
    assert (found.access, found.why_not) == (Access.NVIDIA_RUNTIME, None)


def test_cdi_is_preferred_where_the_engine_takes_it(nvidia: Path) -> None:
    put(nvidia, "etc/cdi/nvidia.yaml", CDI_YAML)
    put(nvidia, "etc/cdi/notes.txt", CDI_YAML.replace("all", "no"))
    both = {**CDI_ENGINE, "Runtimes": RUNTIME["Runtimes"]}

    found = read_gpu_support(both, root=nvidia)

    assert found.access is Access.CDI
    assert found.cdi_devices == ("nvidia.com/gpu=0", "nvidia.com/gpu=all")
    assert read_gpu_support(RUNTIME, root=nvidia).access is Access.NVIDIA_RUNTIME


@pytest.mark.parametrize(
    ("info", "has_toolkit", "words"),
    [
        (None, True, "no container engine answers"),
        ({"ServerVersion": "27.0"}, False, "nvidia-container-toolkit"),
        (CDI_ENGINE, True, "nvidia-ctk cdi generate"),
        ({"ServerVersion": "20.10"}, True, "nvidia-ctk runtime configure"),
    ],
)
def test_what_keeps_a_container_from_the_gpu_is_one_line_with_the_remedy(
    nvidia: Path, info: dict[str, Any] | None, has_toolkit: bool, words: str
) -> None:
    if has_toolkit:
        install_toolkit(nvidia)

    found = read_gpu_support(info, root=nvidia)

    assert (found.access, found.has_toolkit) == (None, has_toolkit)
    assert found.why_not is not None
    assert words in found.why_not
    assert "\n" not in found.why_not


def test_amd_devices_are_given_as_files_or_by_cdi(tmp_path: Path) -> None:
    put(tmp_path, "dev/kfd")

    assert read_gpu_support(CDI_ENGINE, root=tmp_path).access is Access.DEVICE_FILES
    put(tmp_path, "var/run/cdi/amd.json", '{"kind":"amd.com/gpu","devices":[{"name":"all"}]}')
    found = read_gpu_support(CDI_ENGINE, root=tmp_path)
    assert (found.vendor, found.access) == (Vendor.AMD, Access.CDI)
    assert read_gpu_support({}, root=tmp_path).access is Access.DEVICE_FILES


def test_without_a_gpu_no_container_support_gives_access() -> None:
    assert choose_access(None, ("nvidia.com/gpu=all",), takes_cdi=True, has_runtime=True) is None


def kfd_node(root: Path, number: int, **properties: int) -> None:
    lines = "".join(f"{key} {value}\n" for key, value in properties.items())
    put(root, f"sys/class/kfd/kfd/topology/nodes/{number}/properties", lines)


def test_amd_gpus_are_numbered_by_their_places_on_the_bus(tmp_path: Path) -> None:
    assert read_amd_gpus(root=tmp_path) == ()
    for minor in (128, 129, 130):
        put(tmp_path, f"dev/dri/renderD{minor}")
    kfd_node(tmp_path, 0, cpu_cores_count=64, drm_render_minor=0, location_id=0, domain=0)
    kfd_node(tmp_path, 1, simd_count=4, domain=1, location_id=256, drm_render_minor=128)
    kfd_node(tmp_path, 2, domain=0, location_id=50688, drm_render_minor=129, unique_id=171)
    kfd_node(tmp_path, 10, domain=0, location_id=768, drm_render_minor=130, unique_id=2**63)
    kfd_node(tmp_path, 11, domain=0, location_id=1, drm_render_minor=131)  # not given to us
    assert read_amd_gpus(root=tmp_path) == (
        AmdGpu(render_node="renderD130", uuid="GPU-8000000000000000"),
        AmdGpu(render_node="renderD129", uuid="GPU-00000000000000ab"),
        AmdGpu(render_node="renderD128", uuid=""),
    )
