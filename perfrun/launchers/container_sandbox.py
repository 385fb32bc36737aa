"""The request for a trial's container: what it sees and may do. Functions of values only.

Everything is forbidden unless a flag allows it: no network, no capability, no new privileges, a
read-only root, and of the host only the folders that the trial needs, at their own paths.
"""

from __future__ import annotations

import os.path
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.errors import UsageError
from perfrun.image.gpus import (
    AMD_CDI_KIND,
    NVIDIA_CDI_KIND,
    Access,
    AmdGpu,
    Vendor,
    read_amd_gpus,
    read_gpu_support,
)
from perfrun.options.containment import Containment

HOME = "/tmp/home"  # noqa: S108 - in a tmpfs of the container's own
# Writable folders besides the trial's, with their sizes. Compilers of the frameworks use /tmp.
TMPFS = {"/tmp": "1g", "/var/tmp": "256m", "/run": "64m"}  # noqa: S108
# The mode is that of the image's folder of that name, if it has one; the owner is ours.
_TMPFS_OPTIONS = "rw,exec,nosuid,nodev,mode=1777"


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A folder of the host that the container sees at the same path."""

    path: Path
    writable: bool = False
    source: Path | None = None  # the folder itself where the path leads through links


@dataclass(frozen=True, kw_only=True)
class EngineTraits:
    """The abilities of an engine that decide how it is asked for a container."""

    is_rootless: bool
    remaps_users: bool
    can_limit_cpus: bool
    can_limit_memory: bool
    can_limit_swap: bool
    can_limit_pids: bool
    gpu_access: Access | None  # None when it cannot give a container one
    gpu_vendor: Vendor | None
    amd_gpus: tuple[AmdGpu, ...] = ()  # those that have a device file each


@dataclass(frozen=True, kw_only=True)
class User:
    """The user of a trial: numbers, as the container sees them."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def choose_user(uid: int, gid: int, groups: Sequence[int], *, is_rootless: bool) -> User:
    """Return the caller; in a rootless engine that is root, and any other user is a stranger."""
    if is_rootless or uid == 0:
        return User(uid=0, gid=0)
    return User(uid=uid, gid=gid, groups=tuple(group for group in groups if group not in (0, gid)))


def existing_binds(binds: Sequence[Bind]) -> tuple[Bind, ...]:
    """Return the folders that exist, each once; writable when it was writable in any place."""
    writable = {bind.path for bind in binds if bind.writable}
    sources = {bind.path: bind.source for bind in reversed(binds)}
    return tuple(
        Bind(path=path, writable=path in writable, source=sources[path])
        for path in dict.fromkeys(bind.path for bind in binds)
        if (sources[path] or path).exists()
    )


def named_volumes(declared: Sequence[str], binds: Sequence[Bind]) -> dict[str, str]:
    """Return the volumes that the image declares, as name to path.

    The engine would make them writable, and makes only those with a name read-only. It fills them
    with the image's files.
    """
    taken = {*TMPFS, *(str(bind.path) for bind in existing_binds(binds))}
    paths = {os.path.normpath(path) for path in declared} - taken
    return {f"perfrun-{uuid.uuid4().hex}": path for path in sorted(paths)}


def container_arguments(
    image_id: str,
    command: Sequence[str],
    user: User,
    labels: Mapping[str, str],
    folder: Path,
    env: Mapping[str, str],
) -> dict[str, Any]:
    """Return the arguments of the SDK's `create_container`."""
    return {
        "image": image_id,
        "entrypoint": [command[0]],
        "command": list(command[1:]),
        "user": f"{user.uid}:{user.gid}",
        "labels": dict(labels),
        "working_dir": str(folder),
        # The user need not be in the image's password file, and its home is not this one's.
        "environment": {"HOME": HOME, "USER": "perfrun", "LOGNAME": "perfrun", **env},
        "stdin_open": True,
        "healthcheck": {"test": ["NONE"]},
        "use_config_proxy": False,
    }


def host_arguments(
    asked: Containment,
    traits: EngineTraits,
    user: User,
    binds: Sequence[Bind],
    volumes: Mapping[str, str],
    labels: Mapping[str, str],
    *,
    network: str,
) -> dict[str, Any]:
    """Return the arguments of the SDK's `create_host_config`: the limits of the container."""
    from docker.types import LogConfig, Mount

    mounts = [
        Mount(
            target=str(bind.path),
            source=str(bind.source or bind.path),
            type="bind",
            read_only=not bind.writable,
        )
        for bind in existing_binds(binds)
    ]
    mounts += [
        Mount(target=path, source=name, type="volume", read_only=True, labels=dict(labels))
        for name, path in volumes.items()
    ]
    arguments: dict[str, Any] = {
        # The supervisor is process 1: the kernel lets no process of the container kill or stop it.
        "init": False,
        "network_mode": network,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "read_only": True,
        "tmpfs": {
            path: f"{_TMPFS_OPTIONS},uid={user.uid},gid={user.gid},size={size}"
            for path, size in TMPFS.items()
        },
        "mounts": mounts,
        "shm_size": asked.shm_bytes,
        "ipc_mode": "private",
        # The worker writes to files, and the supervisor's few messages come straight to us.
        "log_config": LogConfig(type="none"),
        "restart_policy": {"Name": "no"},
        "group_add": [str(group) for group in user.groups],
    }
    if traits.remaps_users:
        arguments["userns_mode"] = "host"  # or the caller's folders would belong to a stranger
    return {**arguments, **_limits(asked, traits), **_gpus(asked, traits)}


def _limits(asked: Containment, traits: EngineTraits) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if traits.can_limit_pids:
        limits["pids_limit"] = asked.pids
    if asked.memory_bytes and traits.can_limit_memory:
        limits["mem_limit"] = asked.memory_bytes
        if traits.can_limit_swap:
            limits["memswap_limit"] = asked.memory_bytes  # memory and swap together
    if asked.cpuset and traits.can_limit_cpus:
        limits["cpuset_cpus"] = asked.cpuset
    return limits


def _gpus(asked: Containment, traits: EngineTraits) -> dict[str, Any]:
    if not asked.gpus or not traits.gpu_access:
        return {}
    from docker.types import DeviceRequest

    named = asked.gpus.removeprefix("device=").split(",")
    count = int(asked.gpus) if asked.gpus.isdecimal() else None
    if traits.gpu_access is Access.DEVICE_FILES:
        return {"devices": [f"{path}:{path}:rwm" for path in _device_files(asked.gpus, traits)]}
    if traits.gpu_access is Access.CDI:
        kind = AMD_CDI_KIND if traits.gpu_vendor is Vendor.AMD else NVIDIA_CDI_KIND
        chosen = named if count is None else [str(number) for number in range(count)]
        names = [f"{kind}={name}" for name in chosen]
        return {"device_requests": [DeviceRequest(driver="cdi", device_ids=names)]}
    request: dict[str, Any] = {"driver": "nvidia", "capabilities": [["gpu"]]}
    if asked.gpus == "all":
        request["count"] = -1
    elif count is not None:
        request["count"] = count
    else:
        request["device_ids"] = named
    return {"device_requests": [DeviceRequest(**request)]}


def refuse_missing_gpus(asked: Containment, traits: EngineTraits) -> None:
    """Raise UsageError for a GPU that is not there, where perfrun chooses the device files."""
    if asked.gpus and traits.gpu_access is Access.DEVICE_FILES:
        _device_files(asked.gpus, traits)


def _device_files(gpus: str, traits: EngineTraits) -> list[str]:
    """Return the device files that give a container these GPUs and no others."""
    if gpus == "all":
        return ["/dev/kfd", "/dev/dri"]
    there = traits.amd_gpus
    if not there:
        raise UsageError(
            f"--gpus={gpus}: the kernel does not say which file below /dev/dri is which GPU's; "
            "--gpus=all gives all of them"
        )
    numbers = {str(number): gpu for number, gpu in enumerate(there)}
    known = {**numbers, **{gpu.uuid.lower(): gpu for gpu in there if gpu.uuid}}
    if gpus.isdecimal():
        asked = list(numbers)[: int(gpus)]
        if int(gpus) > len(there):
            raise UsageError(f"--gpus={gpus}: this machine has {len(there)}")
    else:
        asked = gpus.removeprefix("device=").lower().split(",")
    for name in asked:
        if name not in known:
            names = ", ".join(f"{n} ({gpu.uuid})" if gpu.uuid else n for n, gpu in numbers.items())
            raise UsageError(f"--gpus={gpus}: this machine has no GPU {name!r}; it has {names}")
    nodes = dict.fromkeys(known[name].render_node for name in asked)
    return ["/dev/kfd", *(f"/dev/dri/{node}" for node in nodes)]


def refused_limits(asked: Containment, traits: EngineTraits) -> tuple[str, ...]:
    """Return the flags that this engine cannot enforce.

    `--cpuset` is never among them: without a cgroup, the supervisor sets the worker's affinity.
    """
    refused = []
    if asked.memory_bytes and not traits.can_limit_memory:
        refused.append("--memory")
    if not traits.can_limit_pids:
        refused.append("--pids_limit")
    return tuple(refused)


def engine_traits(info: Mapping[str, Any]) -> EngineTraits:
    """Return the traits in `docker info`. What it does not mention counts as missing."""
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
    """Return the engine's part of `perfrun.container`."""
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
    """Return the image's part of `perfrun.container`."""
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
    """Return True when each container has a cgroup of its own; else it sees the engine's."""
    return str(info.get("CgroupDriver") or "none") != "none"


def how_to_enforce(refused: Sequence[str], info: Mapping[str, Any]) -> str | None:
    """Return what this engine cannot do and the command that enables it; None if it can do all."""
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
