"""The block in `.env`: what Compose learns from a build, beside the user's own lines."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from perfrun.image import env_file
from perfrun.image.env_file import BEGIN, END, merge_block, new_settings, write_settings
from perfrun.image.gpus import Access, GpuSupport, Vendor
from perfrun.image.spec import ImageSpec

TORCH = ImageSpec(framework="torch", docker_tag="mine/torch")
CUDA = ImageSpec(framework="torch", docker_tag="mine/torch", device="cuda")
TENSORFLOW = ImageSpec(framework="tensorflow", docker_tag="mine/tf")
NO_GPU = GpuSupport(
    vendor=None,
    device_files=(),
    driver_version=None,
    has_toolkit=False,
    cdi_devices=(),
    access=None,
    why_not=None,
)
CHECKOUT = Path(__file__).resolve().parents[3]


def gpu(access: Access) -> GpuSupport:
    return GpuSupport(Vendor.NVIDIA, ("nvidia0",), "570.1", True, (), access, None)


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_file, "this_caller", lambda: (1000, 100))


def test_compose_learns_the_images_and_the_user() -> None:
    assert new_settings(TORCH, NO_GPU, (1000, 100), has_override=False) == {
        "PERFRUN_HOST_UID": "1000",
        "PERFRUN_HOST_GID": "100",
        "PERFRUN_IMAGE": "mine/torch",
        "PERFRUN_TORCH_IMAGE": "mine/torch",
    }
    # Root is nobody's name for the results: the owner of the checkout is.
    assert new_settings(TENSORFLOW, NO_GPU, (0, 0), has_override=False) == {
        "PERFRUN_TENSORFLOW_IMAGE": "mine/tf"
    }


@pytest.mark.parametrize("access", Access)
def test_a_gpu_image_gets_the_file_for_the_way_to_the_gpu(access: Access) -> None:
    settings = new_settings(CUDA, gpu(access), (0, 0), has_override=True)

    first, gpu_file, override = settings["COMPOSE_FILE"].split(os.pathsep)
    assert (first, override) == ("docker-compose.yml", "docker-compose.override.yml")
    assert (CHECKOUT / first).is_file()
    assert (CHECKOUT / gpu_file).is_file()
    assert "COMPOSE_FILE" not in new_settings(TORCH, gpu(access), (0, 0), has_override=True)
    assert "COMPOSE_FILE" not in new_settings(CUDA, NO_GPU, (0, 0), has_override=False)


def test_a_block_is_replaced_and_the_users_lines_stay_where_they_are() -> None:
    own = "# mine\nPERFRUN_SHM_SIZE=4gb\nUNFINISHED"
    first, _ = merge_block(own, {"PERFRUN_IMAGE": "a"}, has_gpu=False)
    second, _ = merge_block(first, {"PERFRUN_IMAGE": "b"}, has_gpu=False)

    assert first == f"{own}\n{BEGIN}\nPERFRUN_IMAGE=a\n{END}\n"
    assert second == first.replace("=a", "=b")
    assert merge_block(second, {"PERFRUN_IMAGE": "b"}, has_gpu=False)[0] == second


def test_lines_after_the_block_stay_too() -> None:
    text = f"{BEGIN}\nPERFRUN_IMAGE=a\n{END}\nLATER=1\n"

    new, _ = merge_block(text, {"PERFRUN_IMAGE": "b"}, has_gpu=False)

    assert new == f"LATER=1\n{BEGIN}\nPERFRUN_IMAGE=b\n{END}\n"


def test_images_of_earlier_builds_stay_named() -> None:
    first, _ = merge_block("", {"PERFRUN_IMAGE": "a", "COMPOSE_FILE": "x"}, has_gpu=True)
    second, _ = merge_block(first, {"PERFRUN_TENSORFLOW_IMAGE": "b"}, has_gpu=True)
    third, _ = merge_block(second, {}, has_gpu=False)

    assert "PERFRUN_IMAGE=a\nPERFRUN_TENSORFLOW_IMAGE=b\n" in second
    assert "COMPOSE_FILE=x\n" in second
    assert "COMPOSE_FILE" not in third


@pytest.mark.parametrize("line", ["PERFRUN_IMAGE=mine", "export PERFRUN_IMAGE = mine"])
def test_what_the_user_set_is_not_set_again(line: str) -> None:
    new, taken = merge_block(f"{line}\n", {"PERFRUN_IMAGE": "a", "B": "b"}, has_gpu=False)

    assert new == f"{line}\n{BEGIN}\nB=b\n{END}\n"
    assert taken == ["PERFRUN_IMAGE"]


def test_a_block_without_an_end_loses_nothing() -> None:
    new, _ = merge_block(f"{BEGIN}\nPERFRUN_IMAGE=a\nMINE=1\n", {"B": "b"}, has_gpu=False)

    assert new == f"PERFRUN_IMAGE=a\nMINE=1\n{BEGIN}\nB=b\n{END}\n"


def test_the_file_is_written_whole_and_keeps_its_rights(caller: None, tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("SECRET=1\n")
    path.chmod(0o600)

    assert write_settings(tmp_path, TORCH, NO_GPU) == []

    assert path.read_text().startswith(f"SECRET=1\n{BEGIN}\nPERFRUN_HOST_GID=100\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == [".env"]
    before = path.stat().st_mtime_ns
    write_settings(tmp_path, TORCH, NO_GPU)
    assert path.stat().st_mtime_ns == before


def test_a_file_that_cannot_be_written_is_a_note(caller: None, tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()

    (note,) = write_settings(tmp_path, TORCH, NO_GPU)

    assert note.startswith("note: ")
    assert "PERFRUN_HOST_UID=1000" in note
    assert "PERFRUN_IMAGE=mine/torch" in note


def test_git_ignores_the_file() -> None:
    assert "/.env" in (CHECKOUT / ".gitignore").read_text("utf-8").splitlines()


def test_compose_passes_on_what_the_block_says() -> None:
    text = (CHECKOUT / "docker-compose.yml").read_text("utf-8")
    settings = new_settings(
        ImageSpec(framework="both", docker_tag="x"), NO_GPU, (1, 1), has_override=False
    )

    for name in settings:
        assert f"${{{name}:-" in text
