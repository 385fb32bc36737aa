"""Settings of a build for Compose, in a block of their own in the checkout's `.env`.

The user's own lines are kept and win.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from perfrun.image.gpus import Access, GpuSupport
from perfrun.image.site_packages import give_to_caller, this_caller
from perfrun.image.spec import ImageSpec

BEGIN = (
    "# >>> setup.py: this block is rewritten with every build; lines outside it are kept and win"
)
END = "# <<< setup.py"
ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*[=:](.*)")
IMAGE_VARIABLES = {
    "torch": ("PERFRUN_IMAGE", "PERFRUN_TORCH_IMAGE"),
    "tensorflow": ("PERFRUN_TENSORFLOW_IMAGE",),
    "jax": ("PERFRUN_JAX_IMAGE",),
    "both": ("PERFRUN_IMAGE", "PERFRUN_TORCH_IMAGE", "PERFRUN_TENSORFLOW_IMAGE"),
}
GPU_FILES = {
    Access.NVIDIA_RUNTIME: "docker-compose.gpu.yml",
    Access.CDI: "docker-compose.cdi.yml",
    Access.DEVICE_FILES: "docker-compose.rocm.yml",
}


def new_settings(
    spec: ImageSpec, gpus: GpuSupport, caller: tuple[int, int], has_override: bool
) -> dict[str, str]:
    """Return the settings of a build for Compose.

    The user has the host's number. The entry point translates it, so it is right for a rootful and
    a rootless engine.
    """
    uid, gid = caller
    owner = {"PERFRUN_HOST_UID": str(uid), "PERFRUN_HOST_GID": str(gid)} if uid else {}
    images = dict.fromkeys(IMAGE_VARIABLES[spec.framework], spec.docker_tag)
    gpu_file = GPU_FILES[gpus.access] if spec.device != "cpu" and gpus.access else ""
    override = ["docker-compose.override.yml"] if has_override else []
    files = ["docker-compose.yml", gpu_file, *override]
    compose = {"COMPOSE_FILE": os.pathsep.join(files)} if gpu_file else {}
    return {**owner, **images, **compose}


def merge_block(text: str, settings: dict[str, str], has_gpu: bool) -> tuple[str, list[str]]:
    """Return the file's new text, and the names that the user's own lines set already.

    Names of other images that an earlier build has written into the block stay.
    """
    own, block = split_block(text)
    kept = {name: value for name, value in block.items() if has_gpu or name != "COMPOSE_FILE"}
    taken = {found[1] for found in map(ASSIGNMENT.match, own.splitlines()) if found}
    merged = {name: value for name, value in {**kept, **settings}.items() if name not in taken}
    lines = [BEGIN, *(f"{name}={value}" for name, value in sorted(merged.items())), END]
    before = own if not own or own.endswith("\n") else own + "\n"
    return before + "\n".join(lines) + "\n", sorted(taken & settings.keys())


def split_block(text: str) -> tuple[str, dict[str, str]]:
    """Return the user's own lines and the block's settings. A block without an end is no block."""
    start = text.find(BEGIN)
    end = text.find(END, start)
    if start < 0 or end < 0:
        return text.replace(BEGIN + "\n", ""), {}
    found = map(ASSIGNMENT.match, text[start:end].splitlines()[1:])
    block = {each[1]: each[2] for each in found if each}
    return text[:start] + text[end + len(END) :].lstrip("\n"), block


def write_settings(checkout: Path, spec: ImageSpec, gpus: GpuSupport) -> list[str]:
    """Write the block aside and rename it; return notes, such as one on a read-only checkout."""
    path = (checkout / ".env").resolve()
    has_override = (checkout / "docker-compose.override.yml").exists()
    settings = new_settings(spec, gpus, this_caller(), has_override)
    try:
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new, taken = merge_block(old, settings, gpus.access is not None)
        if new != old:
            _replace(path, new)
    except (OSError, ValueError) as error:
        what = " ".join(f"{name}={value}" for name, value in settings.items())
        return [f"note: {path} was not written ({error}); Compose would read there: {what}"]
    return [f"note: {path} has its own {name}, which stays" for name in taken]


def _replace(path: Path, text: str) -> None:
    handle, aside = tempfile.mkstemp(prefix=".env-", dir=str(path.parent))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        os.chmod(aside, mode)
        give_to_caller(Path(aside))
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
