"""GPUs, and whether containers can have them."""

from __future__ import annotations

import shutil

from perfrun.checks.check import Check, presence
from perfrun.checks.distribution import install_command
from perfrun.checks.engines import Said
from perfrun.checks.sysfs import Sysfs
from perfrun.probes.gpu import Accelerators

_NVIDIA = "0x10de"
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")


def device_checks(sysfs: Sysfs, said: Said, devices: Accelerators | None) -> list[Check]:
    """The GPUs that are there, and what gives them to containers."""
    return [gpu(sysfs, devices), toolkit(sysfs, said, wanted=devices is not None)]


def gpu(sysfs: Sysfs, devices: Accelerators | None) -> Check:
    """Whether there is a GPU with a working driver."""
    mend = None
    if devices is not None:
        models = sorted(set(devices.models))
        counts = [f"{devices.models.count(model)} x {model}" for model in models]
        value = f"{', '.join(counts)}, driver {devices.driver_version}"
    elif sysfs.exists("/dev/kfd"):
        value = "AMD, through /dev/kfd"
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
        presence=presence(devices is not None or bool(sysfs.exists("/dev/kfd"))),
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


def toolkit(sysfs: Sysfs, said: Said, *, wanted: bool) -> Check:
    """Whether containers can be given the GPUs: by CDI, or by NVIDIA's runtime."""
    specified = any(
        "nvidia.com/gpu" in (sysfs.text(f"{folder}/{name}") or "")
        for folder in _CDI_FOLDERS
        for name in sysfs.names(folder)
        if name.endswith((".yaml", ".yml", ".json"))
    )
    runtime = "nvidia" in (said.info.get("Runtimes") or ())
    ways = [way for way, there in (("CDI", specified), ("NVIDIA runtime", runtime)) if there]
    has_tool = shutil.which("nvidia-ctk") is not None
    mend = None
    if wanted and not ways and has_tool:
        mend = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    elif wanted and not ways:
        mend = install_command(sysfs, {"*": "nvidia-container-toolkit"})
    return Check(
        name="gpu_toolkit",
        wanted="GPU in containers",
        presence=presence(bool(ways)),
        value=", ".join(ways) or ("not set up" if has_tool else "no NVIDIA container toolkit"),
        why="without it a container sees no GPU; CDI is the way for rootless engines",
        mend=mend,
    )
