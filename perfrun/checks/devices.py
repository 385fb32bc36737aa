"""GPUs, and whether containers can have them."""

from __future__ import annotations

import re
from pathlib import Path

from perfrun.checks.check import Check, presence
from perfrun.checks.distribution import install_command
from perfrun.checks.engines import Said
from perfrun.checks.sysfs import Sysfs
from perfrun.image.gpus import GpuSupport, read_gpu_support
from perfrun.probes.gpu import Accelerators

_NVIDIA = "0x10de"


def device_checks(sysfs: Sysfs, said: Said, devices: Accelerators | None) -> list[Check]:
    """The GPUs that are there, and what gives them to containers."""
    support = read_gpu_support(said.info or None, Path(sysfs.root or "/"))
    return [gpu(sysfs, support, devices), toolkit(sysfs, support)]


def gpu(sysfs: Sysfs, support: GpuSupport, devices: Accelerators | None) -> Check:
    """Whether there is a GPU with a working driver."""
    mend = None
    if devices is not None:
        models = sorted(set(devices.models))
        counts = [f"{devices.models.count(model)} x {model}" for model in models]
        value = f"{', '.join(counts)}, driver {devices.driver_version}"
    elif support.vendor is not None:
        value = f"{support.vendor.value.upper()}: {', '.join(support.device_files)}"
    elif _has_nvidia_hardware(sysfs):
        value = "an NVIDIA device without a working driver"
        mend = install_command(
            sysfs, {"debian": "nvidia-driver", "ubuntu": "nvidia-driver-570-server"}
        )
    else:
        value = "no device" if sysfs.names("/sys/bus/pci/devices") else "no device, or no driver"
    return Check(
        name="gpu",
        wanted="GPU",
        presence=presence(devices is not None or support.vendor is not None),
        value=value,
        why="benchmarks that ask for one",
        mend=mend,
    )


def _has_nvidia_hardware(sysfs: Sysfs) -> bool:
    folder = "/sys/bus/pci/devices"
    return any(
        sysfs.text(f"{folder}/{name}/vendor") == _NVIDIA
        and (sysfs.text(f"{folder}/{name}/class") or "").startswith("0x03")
        for name in sysfs.names(folder)
    )


def toolkit(sysfs: Sysfs, support: GpuSupport) -> Check:
    """Whether containers of this engine can be given the GPUs, and by which way."""
    mend = None
    if support.access is not None:
        value = support.access.value
    elif support.vendor is None:
        value = "no GPU to give"
    else:
        value, mend = _no_access(sysfs, support)
    return Check(
        name="gpu_toolkit",
        wanted="GPU in containers",
        presence=presence(support.access is not None),
        value=value,
        why="without it a container sees no GPU; CDI is the way for rootless engines",
        mend=mend,
    )


def _no_access(sysfs: Sysfs, support: GpuSupport) -> tuple[str, str | None]:
    """What is missing, and the command out of the sentence that says so."""
    said = support.why_not or "no way into a container is known"
    command = re.search(r"`(sudo [^`]*)`", said)
    if command:
        return said.partition(";")[0], command[1]
    if not support.has_toolkit and "Toolkit" in said:
        return said.partition(";")[0], install_command(sysfs, {"*": "nvidia-container-toolkit"})
    return said, None
