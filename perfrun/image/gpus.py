"""GPUs of this machine, and the ways in which a container can use them.

Parsers and readers of files for setup.py, `perfrun doctor` and --gpus of the container launcher.
No process is started: the caller passes the document of `docker info`.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Mapping

# The folders of the Container Device Interface (see cncf-tags/container-device-interface),
# which are also Docker's defaults.
CDI_FOLDERS = ("etc/cdi", "var/run/cdi")
NVIDIA_CDI_KIND = "nvidia.com/gpu"
AMD_CDI_KIND = "amd.com/gpu"
NVIDIA_RUNTIME = "nvidia"
NVIDIA_DEVICE = re.compile(r"nvidia\d+")
DRIVER_VERSION = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")


class Vendor(Enum):
    """The maker of a GPU, which decides what an image needs."""

    NVIDIA = "nvidia"
    AMD = "amd"


class Access(Enum):
    """The way in which a container gets a GPU."""

    CDI = "cdi"
    """A device request of the driver `cdi`, with names such as `nvidia.com/gpu=all`."""
    NVIDIA_RUNTIME = "nvidia runtime"
    """A device request of capability `gpu` (`docker run --gpus`)."""
    DEVICE_FILES = "device files"
    """The files /dev/kfd and /dev/dri (AMD)."""


@dataclass(frozen=True)
class GpuSupport:
    """The GPUs of this machine. None means that nothing was found, not that nothing is there."""

    vendor: Vendor | None
    device_files: tuple[str, ...]
    """Names below /dev: nvidia0, nvidia1, ..., kfd."""
    driver_version: str | None
    """NVIDIA's kernel module; AMD's is the kernel's own."""
    has_toolkit: bool
    """True when `nvidia-ctk` of the NVIDIA Container Toolkit is on the path."""
    cdi_devices: tuple[str, ...]
    """Qualified names (vendor/class=name) in the CDI folders, or that the engine reports."""
    access: Access | None
    """The way in which a container of this engine gets a GPU."""
    why_not: str | None
    """One line: what is missing and what mends it, when there is a GPU but no access."""


def parse_driver_version(text: str) -> str | None:
    """Return the version in /proc/driver/nvidia/version, of either kernel module."""
    first_line = text.partition("\n")[0]
    found = DRIVER_VERSION.search(first_line)
    return found[1] if found else None


def parse_cdi_spec(text: str) -> tuple[str, ...]:
    """Return the qualified device names of one CDI file, JSON or YAML; () for other files.

    YAML is read line by line, which is enough for the block style that `nvidia-ctk cdi generate`
    and `amd-ctk` write: a top-level `kind:`, and `name:` as a key of each item of `devices:`.
    """
    if text.lstrip().startswith("{"):
        return _parse_cdi_json(text)
    kind, names, item_column, in_devices = "", [], -1, False
    for line in text.splitlines():
        top = re.match(r"(kind|[A-Za-z]\w*):\s*(.*)", line)
        if top:
            kind = _unquoted(top[2]) if top[1] == "kind" else kind
            in_devices, item_column = top[1] == "devices", -1
            continue
        item = re.match(r"(\s*-\s+)\S", line)
        if in_devices and item and (item_column < 0 or len(item[1]) == item_column):
            item_column = len(item[1])
        name = re.match(r"([\s-]*)name:\s*(\S.*)", line)
        if in_devices and name and len(name[1]) == item_column:
            names.append(_unquoted(name[2]))
    return tuple(f"{kind}={name}" for name in names) if kind else ()


def _parse_cdi_json(text: str) -> tuple[str, ...]:
    try:
        spec = json.loads(text)
        return tuple(f"{spec['kind']}={device['name']}" for device in spec["devices"])
    except (ValueError, KeyError, TypeError):
        return ()


def _unquoted(value: str) -> str:
    return value.strip().strip("'\"")


def parse_engine_cdi(info: Mapping[str, Any]) -> tuple[bool, tuple[str, ...]]:
    """Return True if an engine takes CDI names, and the names it has found (Docker >= 28.2)."""
    folders = info.get("CDISpecDirs") or ()
    found = info.get("DiscoveredDevices") or ()
    names = (str(device.get("ID", "")) for device in found if device.get("Source") == "cdi")
    return bool(folders), tuple(name for name in names if name)


def has_nvidia_runtime(info: Mapping[str, Any]) -> bool:
    """Return True when the NVIDIA runtime is registered with the engine."""
    return NVIDIA_RUNTIME in (info.get("Runtimes") or {})


def read_gpu_support(info: Mapping[str, Any] | None = None, root: Path = Path("/")) -> GpuSupport:
    """Return the GPUs of this machine; `info` is that of `docker info`, None without an engine."""
    device_files = _device_files(root / "dev")
    driver_version = parse_driver_version(_text(root / "proc/driver/nvidia/version"))
    vendor = _vendor(device_files, driver_version)
    takes_cdi, discovered = parse_engine_cdi(info or {})
    names = tuple(sorted({*discovered, *_cdi_devices(root)}))
    has_toolkit = shutil.which("nvidia-ctk") is not None
    access = choose_access(vendor, names, takes_cdi, has_nvidia_runtime(info or {}))
    lacks = vendor is not None and access is None
    return GpuSupport(
        vendor=vendor,
        device_files=device_files,
        driver_version=driver_version,
        has_toolkit=has_toolkit,
        cdi_devices=names,
        access=access,
        why_not=explain_no_access(has_toolkit, takes_cdi, names, info) if lacks else None,
    )


def choose_access(
    vendor: Vendor | None, cdi_devices: tuple[str, ...], takes_cdi: bool, has_runtime: bool
) -> Access | None:
    """Return the best access: CDI works in a rootless engine as it is, the runtime does not."""
    kinds = {name.partition("=")[0] for name in cdi_devices}
    if vendor is Vendor.AMD:
        return Access.CDI if takes_cdi and AMD_CDI_KIND in kinds else Access.DEVICE_FILES
    if vendor is None:
        return None
    if takes_cdi and NVIDIA_CDI_KIND in kinds:
        return Access.CDI
    return Access.NVIDIA_RUNTIME if has_runtime else None


def explain_no_access(
    has_toolkit: bool, takes_cdi: bool, cdi_devices: tuple[str, ...], info: Mapping[str, Any] | None
) -> str:
    """Return why a container cannot use this machine's NVIDIA GPU, and the command that helps."""
    if info is None:
        return "no container engine answers"
    if not has_toolkit:
        return (
            "the NVIDIA Container Toolkit is not installed; install the package "
            "nvidia-container-toolkit from NVIDIA's package source"
        )
    if takes_cdi and not cdi_devices:
        return (
            "there is no CDI file; run `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
        )
    return (
        "the engine does not know the NVIDIA runtime; run "
        "`sudo nvidia-ctk runtime configure --runtime=docker` and restart the engine"
    )


def _vendor(device_files: tuple[str, ...], driver_version: str | None) -> Vendor | None:
    if driver_version or any(NVIDIA_DEVICE.fullmatch(name) for name in device_files):
        return Vendor.NVIDIA
    if "kfd" in device_files:
        return Vendor.AMD
    # Under WSL the driver has one device file for all GPUs, and its tool is on the path.
    if "dxg" in device_files and shutil.which("nvidia-smi"):
        return Vendor.NVIDIA
    return None


def _device_files(folder: Path) -> tuple[str, ...]:
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return ()
    return tuple(
        sorted(name for name in names if NVIDIA_DEVICE.fullmatch(name) or name in ("kfd", "dxg"))
    )


def _cdi_devices(root: Path) -> tuple[str, ...]:
    paths = [path for folder in CDI_FOLDERS for path in sorted((root / folder).glob("*"))]
    specs = (_text(path) for path in paths if path.suffix in (".yaml", ".yml", ".json"))
    return tuple(name for text in specs for name in parse_cdi_spec(text))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True)
class AmdGpu:
    """An AMD GPU that a container can get by its render node and /dev/kfd."""

    render_node: str
    """Name below /dev/dri."""
    uuid: str
    """As AMD's tools show it (GPU-0123456789abcdef); "" of a GPU that has none."""


def read_amd_gpus(root: Path = Path("/")) -> tuple[AmdGpu, ...]:
    """Return the AMD GPUs in the order of their places on the PCI bus, as AMD's tools number them.

    Source: drivers/gpu/drm/amd/amdkfd/kfd_topology.c of the kernel.
    """
    found = []
    for path in (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"):
        said = dict(re.findall(r"^(\w+) (\d+)$", _text(path), re.MULTILINE))
        domain, place, minor, unique = (
            int(said.get(key, 0))
            for key in ("domain", "location_id", "drm_render_minor", "unique_id")
        )
        node = "renderD%d" % minor
        if minor and (root / "dev/dri" / node).exists():  # a CPU is a node without one
            uuid = "GPU-%016x" % unique if unique else ""
            found.append((domain, place, minor, AmdGpu(render_node=node, uuid=uuid)))
    return tuple(gpu for *_, gpu in sorted(found, key=lambda one: one[:3]))
