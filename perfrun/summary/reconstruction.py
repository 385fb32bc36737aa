"""Reconstruct the command line that runs the trial of a summary again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfrun.options.containment import COMPANIONS
from perfrun.summary.series_identity import objects, section, text

_HIDDEN = "***"  # redaction replaces a secret by this
# Flags that are taken as recorded; code, image and interpreter are those that the trial had.
_TEXTS = (
    "python_path",
    "perfzero_constructor_args",
    "benchmark_class_type",
    "root_data_dir",
    "data_downloads",
    "gcs_downloads",
    "profiler_enabled_time",
    "ml_framework_build_label",
    "platform_name",
    "system_name",
    "timeout",
    "trial_network",
    "cpuset",
    "memory",
    "shm_size",
    "gpus",
    "pids_limit",
    "allocator",
)


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """The command line that runs the trial of a summary again."""

    words: tuple[str, ...]  # flags of a run, without method, workspace and label
    benchmark_flags: tuple[str, ...]
    lost: tuple[str, ...]  # facts that the summary lacks; with any, this is not the same trial


def reconstruct(document: Mapping[str, Any]) -> Reconstruction:
    """Reconstruct the command line from a summary. Missing facts become `lost`, never an error.

    A fact of another type than perfrun writes counts as missing.
    """
    own = document.get("perfrun")
    if not isinstance(own, Mapping):
        return Reconstruction(words=(), benchmark_flags=(), lost=("the summary is not perfrun's",))
    flags = section(section(document, "benchmark_info"), "flags")
    words = [f"--{name}={flags[name]}" for name in _TEXTS if flags.get(name)]
    lost = [f"the secret in --{name}" for name in _TEXTS if _HIDDEN in str(flags.get(name) or "")]
    for part in (_code(own, lost), _place(own, flags, lost), _variables(own, lost)):
        words += part
    if flags.get("debug"):
        words.append("--debug")
    after = tuple(map(str, own.get("benchmark_flags") or ()))
    lost += ["the secret in the flags after --"] if any(_HIDDEN in flag for flag in after) else []
    return Reconstruction(words=tuple(words), benchmark_flags=after, lost=tuple(lost))


def words_beside(made: Reconstruction, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the recorded words that can stand before the flags that the user gives.

    Of an interpreter and an image there is only one, which is then the user's.
    """
    left: tuple[str, ...] = ()
    if given.get("image"):
        left = ("python", "image", "image_python")
    elif given.get("python"):
        left = ("image", *COMPANIONS)
    beginnings = tuple(f"--{name}=" for name in left)
    return tuple(word for word in made.words if not (left and word.startswith(beginnings)))


def _code(own: Mapping[str, Any], lost: list[str]) -> list[str]:
    """Return `--git_repos` with each checkout at its commit."""
    items = []
    for checkout in objects(own.get("git")):
        name, url, commit, ref = (
            text(checkout.get(key)) for key in ("directory", "url", "git_hash", "asked_ref")
        )
        if not url or not commit:
            lost.append(f"{name}: was no git checkout")
        elif _HIDDEN in url:
            lost.append(f"{name}: the secret in its url")
        elif checkout.get("dirty"):
            lost.append(f"{name}: its local edits")
        items.append(f"{url};{ref};{commit}")
    return [f"--git_repos={','.join(items)}"] if items else []


def _place(own: Mapping[str, Any], flags: Mapping[str, Any], lost: list[str]) -> list[str]:
    """Return the flags of the image, by its id, or of the interpreter, by its path."""
    container = section(own, "container")
    if container:
        image = text(container.get("image_id"))
        if not image:
            lost.append(f"the id of the image {text(container.get('image'))}")
        python = text(flags.get("image_python"))
        return [f"--image={image}", *([f"--image_python={python}"] if python else [])]
    python = text(flags.get("python"))  # may be a script that starts the interpreter
    if not python.startswith("/"):
        python = text(section(section(own, "environment"), "python").get("executable"))
    if not python:
        lost.append("the interpreter")
    return [f"--python={python}"]


def _variables(own: Mapping[str, Any], lost: list[str]) -> list[str]:
    env = {name: str(value) for name, value in section(own, "env").items()}
    lost += [f"the secret in --env={name}" for name, value in env.items() if _HIDDEN in value]
    return [f"--env={name}={value}" for name, value in env.items()]
