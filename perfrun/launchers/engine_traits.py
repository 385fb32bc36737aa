"""What an engine and an image are, from what the engine says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfrun.image.gpus import read_amd_gpus, read_gpu_support
from perfrun.launchers.sandbox import EngineTraits


def engine_traits(info: Mapping[str, Any]) -> EngineTraits:
    """From `docker info`. A missing answer is a no: a limit must not be promised."""
    gpus = read_gpu_support(info)
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    return EngineTraits(
        is_rootless=any("name=rootless" in option for option in options),
        remaps_users=any("name=userns" in option for option in options),
        can_limit_cpus=bool(info.get("CPUSet")),
        can_limit_memory=bool(info.get("MemoryLimit")),
        can_limit_swap=bool(info.get("SwapLimit")),
        can_limit_pids=bool(info.get("PidsLimit")),
        gpu_access=gpus.access,
        gpu_vendor=gpus.vendor,
        amd_gpus=read_amd_gpus(),
    )


def engine_facts(info: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's part of `perfrun.container`."""
    driver = info.get("CgroupDriver")
    version = str(info.get("CgroupVersion") or "")
    return {
        "engine_version": info.get("ServerVersion"),
        "rootless": engine_traits(info).is_rootless,
        "cgroup_driver": driver,
        "cgroup_version": int(version) if version.isdigit() else None,
        "storage_driver": info.get("Driver"),
        "default_runtime": info.get("DefaultRuntime"),
    }


def image_facts(asked: str, image: Mapping[str, Any]) -> dict[str, Any]:
    """The image's part of `perfrun.container`."""
    config = image.get("Config") or {}
    return {
        "image": asked,
        "image_id": image.get("Id"),
        "repo_digests": list(image.get("RepoDigests") or ()),
        "labels": dict(config.get("Labels") or {}),
        "created": image.get("Created"),
        "architecture": image.get("Architecture"),
    }


def has_cgroups(info: Mapping[str, Any]) -> bool:
    """Whether each container has a cgroup of its own. Without, what it sees is the engine's."""
    return str(info.get("CgroupDriver") or "none") != "none"


def how_to_enforce(refused: Sequence[str], info: Mapping[str, Any]) -> str | None:
    """What this engine cannot do, and the one line that lets it; None when it can do all."""
    if not refused and has_cgroups(info):
        return None
    if str(info.get("CgroupVersion")) == "1":
        line = (
            "boot with cgroup v2: `sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&"
            "systemd.unified_cgroup_hierarchy=1 /' /etc/default/grub && sudo update-grub && "
            "sudo reboot`"
        )
    else:
        line = (
            "delegate the controllers: `sudo mkdir -p /etc/systemd/system/user@.service.d && "
            "printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | sudo tee "
            "/etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload`, "
            "then log in again"
        )
    lacks = [f"cannot enforce {', '.join(refused)}"] if refused else []
    if not has_cgroups(info):
        lacks.append("keeps no memory peak of a container")
    return f"this engine (cgroup driver {info.get('CgroupDriver')}) {' and '.join(lacks)}; {line}"
