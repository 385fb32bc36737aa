"""The container of a trial as the engine is asked for it: what it sees, and what it may do. Pure.

Everything is locked unless a flag opens it: no network, no capability, no new privileges, a root
that cannot be written, and of the host only the folders that the trial needs, at their own paths.

What an engine and an image are, from what the engine says of them.
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
# Sizes of what can be written besides the trial's folder. Compilers of the frameworks work in /tmp.
TMPFS = {"/tmp": "1g", "/var/tmp": "256m", "/run": "64m"}  # noqa: S108
# The mode is that of the image's folder of that name, if it has one; the owner is ours.
_TMPFS_OPTIONS = "rw,exec,nosuid,nodev,mode=1777"


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A folder of the host that the container sees at the same path."""

    path: Path
    writable: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineTraits:
    """What decides how a container is asked for."""

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
    """Who the trial is: numbers, as the container sees them."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def choose_user(uid: int, gid: int, groups: Sequence[int], *, is_rootless: bool) -> User:
    """The caller. In a rootless engine root *is* the caller, and everybody else is a stranger."""
    if is_rootless or uid == 0:
        return User(uid=0, gid=0)
    return User(uid=uid, gid=gid, groups=tuple(group for group in groups if group not in (0, gid)))


def existing_binds(binds: Sequence[Bind]) -> tuple[Bind, ...]:
    """Those that are there, each once; writable if any of its namesakes is."""
    writable = {bind.path for bind in binds if bind.writable}
    paths = dict.fromkeys(bind.path for bind in binds)
    return tuple(Bind(path=path, writable=path in writable) for path in paths if path.exists())


def named_volumes(declared: Sequence[str], binds: Sequence[Bind]) -> dict[str, str]:
    """Name to path of what the image declares as volumes.

    As the engine makes them they would be places to write to, and it takes only those that have a
    name as read-only. It fills them with what the image has there.
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
    """Arguments of the SDK's `create_container`."""
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
    """Arguments of the SDK's `create_host_config`: the walls of the container."""
    from docker.types import LogConfig, Mount

    mounts = [
        Mount(target=str(b.path), source=str(b.path), type="bind", read_only=not b.writable)
        for b in existing_binds(binds)
    ]
    mounts += [
        Mount(target=path, source=name, type="volume", read_only=True, labels=dict(labels))
        for name, path in volumes.items()
    ]
    arguments: dict[str, Any] = {
        "init": True,
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
        # Its streams are files; the little that the supervisor says goes straight to us.
        "log_config": LogConfig(type="none"),
        "restart_policy": {"Name": "no"},
        "group_add": [str(group) for group in user.groups],
    }
    if traits.remaps_users:
        arguments["userns_mode"] = "host"  # or the caller's folders would be a stranger's
    return {**arguments, **_limits(asked, traits), **_gpus(asked, traits)}


def _limits(asked: Containment, traits: EngineTraits) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if traits.can_limit_pids:
        limits["pids_limit"] = asked.pids
    if asked.memory_bytes and traits.can_limit_memory:
        limits["mem_limit"] = asked.memory_bytes
        if traits.can_limit_swap:
            limits["memswap_limit"] = asked.memory_bytes  # of both together: so none is swapped
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
    """Raise UsageError for a GPU that is not there, where it is us who choose the device files."""
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
    """The flags that this engine cannot enforce.

    Not `--cpuset`: without a cgroup, the supervisor sets the worker's affinity.
    """
    refused = []
    if asked.memory_bytes and not traits.can_limit_memory:
        refused.append("--memory")
    if not traits.can_limit_pids:
        refused.append("--pids_limit")
    return tuple(refused)


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
