"""AMD devices by the files of their driver: trees of /sys and /dev as the kernel makes them."""

from __future__ import annotations

import platform
from pathlib import Path
from types import SimpleNamespace

import pytest
from machines import built

from perfrun.probes import amd
from perfrun.probes.amd import amd_accelerators

CPU_NODE = "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\ndrm_render_minor 0\n"
NODES = "/sys/class/kfd/kfd/topology/nodes"


def gpu(minor: int, place: int, target: int = 90402, domain: int = 0) -> str:
    return (
        f"cpu_cores_count 0\nsimd_count 304\ngfx_target_version {target}\nvendor_id 4098\n"
        f"location_id {place}\ndomain {domain}\ndrm_render_minor {minor}\nunique_id 171\n"
    )


def device(minor: int, name: str | None, memory: int | None) -> dict[str, str | None]:
    folder = f"/sys/class/drm/renderD{minor}/device"
    return {
        f"/dev/dri/renderD{minor}": "",
        f"{folder}/product_name": name,
        f"{folder}/mem_info_vram_total": None if memory is None else f"{memory}\n",
    }


# Two cards of a server, numbered against their places on the bus, and one that is not given to us.
SERVER = {
    "/dev/kfd": "",
    "/sys/module/amdgpu/version": "6.12.12\n",
    f"{NODES}/0/properties": CPU_NODE,
    f"{NODES}/1/properties": gpu(129, place=0x4100),
    f"{NODES}/2/properties": gpu(128, place=0x2700),
    f"{NODES}/3/properties": gpu(130, place=0x8300),
    **device(128, "AMD Instinct MI300X\n", 2**37),
    **device(129, "AMD Instinct MI300X OAM\n", 2**38),
}


def test_the_devices_of_a_server_are_in_the_order_of_the_bus(tmp_path: Path) -> None:
    found = amd_accelerators(built(tmp_path, SERVER))
    assert found is not None
    assert (found.vendor, found.count, found.driver_version) == ("amd", 2, "6.12.12")
    assert found.models == ("AMD Instinct MI300X", "AMD Instinct MI300X OAM")
    assert (found.model, found.memory_bytes) == ("AMD Instinct MI300X", (2**37, 2**38))


def test_a_card_without_a_name_has_that_of_the_library_or_of_its_instruction_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = built(
        tmp_path,
        {
            "/dev/kfd": "",
            f"{NODES}/1/properties": gpu(128, place=768, target=90010),
            **device(128, None, None),
        },
    )
    found = amd_accelerators(tree)
    assert found is not None
    assert (found.models, found.memory_bytes) == (("AMD gfx90a",), (None,))
    assert found.driver_version == platform.release()  # the kernel's own driver has no version
    library = ((SimpleNamespace(name="AMD Radeon PRO W7900"),), None)
    monkeypatch.setattr(amd, "amd_devices", lambda: library)
    found = amd_accelerators(tree)
    assert found is not None
    assert found.models == ("AMD Radeon PRO W7900",)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"/dev/kfd": "", f"{NODES}/0/properties": CPU_NODE},
        {**SERVER, "/dev/kfd": None},  # a container that was given the render nodes only
        {"/dev/kfd": "", f"{NODES}/1/properties": gpu(128, place=1)},  # without its render node
        {"/dev/kfd": "", f"{NODES}/1/properties": "drm_render_minor x\nlocation_id\n"},
    ],
)
def test_no_device_is_absent_not_zero(tmp_path: Path, files: dict[str, str | None]) -> None:
    assert amd_accelerators(built(tmp_path, files)) is None


@pytest.mark.parametrize(
    ("version", "name"), [(90402, "gfx942"), (90006, "gfx906"), (110001, "gfx1101"), (0, "device")]
)
def test_instruction_sets_are_named_as_compilers_do(version: int, name: str) -> None:
    assert amd._target(version) == f"AMD {name}"
