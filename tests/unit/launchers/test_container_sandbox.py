"""The request for a container: all is forbidden, and of the host it sees only named folders."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfrun.errors import UsageError
from perfrun.image.gpus import Access, AmdGpu, Vendor
from perfrun.launchers.container_sandbox import (
    Bind,
    EngineTraits,
    User,
    choose_user,
    container_arguments,
    engine_traits,
    existing_binds,
    has_cgroups,
    host_arguments,
    how_to_enforce,
    named_volumes,
    refuse_missing_gpus,
    refused_limits,
)
from perfrun.launchers.mounts import folders_of
from perfrun.options.containment import Containment

ABLE = EngineTraits(
    is_rootless=False,
    remaps_users=False,
    can_limit_cpus=True,
    can_limit_memory=True,
    can_limit_swap=True,
    can_limit_pids=True,
    gpu_access=None,
    gpu_vendor=None,
)
UNABLE = replace(
    ABLE, is_rootless=True, can_limit_cpus=False, can_limit_memory=False, can_limit_pids=False
)
USER = User(uid=1000, gid=1001, groups=(44,))


def host(
    asked: Containment | None = None, traits: EngineTraits = ABLE, **more: Any
) -> dict[str, Any]:
    asked = asked or Containment(image="i")
    arguments = {"binds": (), "volumes": {}, "labels": {}, "network": asked.network, **more}
    return host_arguments(asked, traits, USER, **arguments)


def test_everything_is_locked_by_default() -> None:
    found = host()
    assert found["network_mode"] == "none"
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert found["read_only"] is True
    assert found["init"] is False  # the supervisor is process 1
    assert found["pids_limit"] == 4096
    assert found["ipc_mode"] == "private"
    assert "privileged" not in found
    assert all("size=" in options for options in found["tmpfs"].values())
    assert all("uid=1000,gid=1001" in options for options in found["tmpfs"].values())
    assert {"mem_limit", "cpuset_cpus", "device_requests"}.isdisjoint(found)


def test_a_memory_limit_leaves_nothing_to_swap_where_swap_can_be_limited() -> None:
    asked = Containment(image="i", memory_bytes=2**30, cpuset="0", pids=99)
    found = host(asked)
    assert (found["mem_limit"], found["memswap_limit"]) == (2**30, 2**30)
    assert (found["cpuset_cpus"], found["pids_limit"]) == ("0", 99)
    assert "memswap_limit" not in host(asked, replace(ABLE, can_limit_swap=False))


def test_limits_that_cannot_be_had_are_not_asked_for_and_named() -> None:
    asked = Containment(image="i", memory_bytes=2**30, cpuset="0")
    assert {"mem_limit", "memswap_limit", "cpuset_cpus", "pids_limit"}.isdisjoint(
        host(asked, UNABLE)
    )
    assert refused_limits(asked, UNABLE) == ("--memory", "--pids_limit")
    assert refused_limits(asked, ABLE) == ()
    info = {"CgroupDriver": "none", "CgroupVersion": "1"}
    text = how_to_enforce(("--memory",), info)
    assert text is not None
    assert "cannot enforce --memory and keeps no memory peak" in text
    assert "systemd.unified_cgroup_hierarchy=1" in text
    text = how_to_enforce((), {"CgroupDriver": "none", "CgroupVersion": "2"})
    assert text is not None
    assert "Delegate=" in text
    assert how_to_enforce((), {"CgroupDriver": "systemd", "CgroupVersion": "2"}) is None
    assert not has_cgroups({})


def test_only_folders_that_are_there_are_mounted_and_only_one_is_writable(tmp_path: Path) -> None:
    (tmp_path / "a,b:c").mkdir()
    (tmp_path / "out").mkdir()
    binds = [
        Bind(path=tmp_path / "a,b:c"),
        Bind(path=tmp_path / "missing"),
        Bind(path=tmp_path / "out"),
        Bind(path=tmp_path / "out", writable=True),
    ]
    assert existing_binds(binds) == (
        Bind(path=tmp_path / "a,b:c"),
        Bind(path=tmp_path / "out", writable=True),
    )
    mounts = host(binds=binds, volumes={"perfrun-1": "/data"}, labels={"a": "b"})["mounts"]
    assert [(m["Source"], m["ReadOnly"]) for m in mounts] == [
        (str(tmp_path / "a,b:c"), True),
        (str(tmp_path / "out"), False),
        ("perfrun-1", True),
    ]
    assert [m["Target"] for m in mounts[:2]] == [m["Source"] for m in mounts[:2]]
    assert mounts[2]["Target"] == "/data"
    assert mounts[2]["VolumeOptions"]["Labels"] == {"a": "b"}


def test_a_volume_of_the_image_gives_way_to_what_is_mounted_there(tmp_path: Path) -> None:
    declared = ["/tmp", "/var/tmp/", str(tmp_path), "/data/", "/data"]
    found = named_volumes(declared, [Bind(path=tmp_path)])
    assert list(found.values()) == ["/data"]
    assert found.keys() != named_volumes(declared, ()).keys()


def test_the_harness_and_its_libraries_are_not_among_the_folders(tmp_path: Path) -> None:
    paths = [bind.path for bind in folders_of(tmp_path / "site-packages", "/data")]
    assert not any(bind.writable for bind in folders_of(tmp_path, "/data"))
    package = next(path for path in paths if path.name == "worker").parent
    assert package not in paths
    assert package.parent not in paths
    with pytest.raises(UsageError, match="would show this whole host"):
        folders_of(tmp_path, "/")


def test_the_user_is_the_caller_in_both_kinds_of_engine() -> None:
    assert choose_user(1000, 1001, [1001, 44, 0], is_rootless=False) == USER
    assert choose_user(1000, 1001, [44], is_rootless=True) == User(uid=0, gid=0)
    assert choose_user(0, 0, [0, 1], is_rootless=False) == User(uid=0, gid=0)
    found = container_arguments(
        "sha256:1", ["python3", "-I", "x"], USER, {"a": "b"}, Path("/w"), {"X": "1"}
    )
    assert (found["user"], found["entrypoint"], found["command"]) == (
        "1000:1001",
        ["python3"],
        ["-I", "x"],
    )
    assert found["use_config_proxy"] is False


@pytest.mark.parametrize(
    ("gpus", "access", "request_"),
    [
        ("all", Access.NVIDIA_RUNTIME, {"Driver": "nvidia", "Count": -1}),
        ("2", Access.NVIDIA_RUNTIME, {"Driver": "nvidia", "Count": 2}),
        ("device=GPU-1,3", Access.NVIDIA_RUNTIME, {"DeviceIDs": ["GPU-1", "3"]}),
        ("all", Access.CDI, {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}),
        ("2", Access.CDI, {"DeviceIDs": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]}),
    ],
)
def test_gpus_are_asked_for_as_the_engine_gives_them(
    gpus: str, access: Access, request_: dict[str, Any]
) -> None:
    traits = replace(ABLE, gpu_access=access, gpu_vendor=Vendor.NVIDIA)
    (found,) = host(Containment(image="i", gpus=gpus), traits)["device_requests"]
    assert {key: found[key] for key in request_} == request_


AMD = replace(
    ABLE,
    gpu_access=Access.DEVICE_FILES,
    gpu_vendor=Vendor.AMD,
    amd_gpus=(
        AmdGpu(render_node="renderD130", uuid="GPU-00000000000000aa"),
        AmdGpu(render_node="renderD128", uuid=""),
    ),
)


@pytest.mark.parametrize(
    ("gpus", "paths"),
    [
        ("all", ["/dev/kfd", "/dev/dri"]),
        ("1", ["/dev/kfd", "/dev/dri/renderD130"]),
        ("2", ["/dev/kfd", "/dev/dri/renderD130", "/dev/dri/renderD128"]),
        ("device=0", ["/dev/kfd", "/dev/dri/renderD130"]),
        ("device=1", ["/dev/kfd", "/dev/dri/renderD128"]),
        ("device=1,0,1", ["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD130"]),
        ("device=GPU-00000000000000AA", ["/dev/kfd", "/dev/dri/renderD130"]),
    ],
)
def test_of_amd_gpus_a_container_is_given_those_that_were_asked_for(
    gpus: str, paths: list[str]
) -> None:
    asked = Containment(image="i", gpus=gpus)
    refuse_missing_gpus(asked, AMD)
    assert host(asked, AMD)["devices"] == [f"{path}:{path}:rwm" for path in paths]


@pytest.mark.parametrize(
    ("gpus", "says"),
    [
        ("3", "--gpus=3: this machine has 2"),
        ("device=2", "no GPU '2'; it has 0 (GPU-00000000000000aa), 1"),
        ("device=0,GPU-1", "no GPU 'gpu-1'; it has 0"),
        ("device=0000:03:00.0", "no GPU '0000:03:00.0'"),
    ],
)
def test_amd_gpus_that_are_not_there_are_refused_in_one_line(gpus: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as told:
        refuse_missing_gpus(Containment(image="i", gpus=gpus), AMD)
    assert "\n" not in str(told.value)


def test_amd_gpus_whose_files_are_not_known_are_given_all_or_not_at_all() -> None:
    unknown = replace(AMD, amd_gpus=())
    with pytest.raises(UsageError, match="--gpus=1: the kernel does not say which file"):
        refuse_missing_gpus(Containment(image="i", gpus="1"), unknown)
    refuse_missing_gpus(Containment(image="i", gpus="all"), unknown)
    # The engine refuses what is not there where it is the one who chooses.
    refuse_missing_gpus(
        Containment(image="i", gpus="device=9"), replace(unknown, gpu_access=Access.CDI)
    )


def test_what_an_engine_does_not_say_it_cannot_do() -> None:
    found = engine_traits({})
    assert not found.can_limit_memory
    assert not found.can_limit_pids
    info = {"MemoryLimit": True, "SecurityOptions": ["name=seccomp", "name=rootless"]}
    assert engine_traits(info).is_rootless
    assert engine_traits(info).can_limit_memory
    assert engine_traits({"SecurityOptions": ["name=userns"]}).remaps_users
