"""The command line that would run the trial of a summary again: the very commits, image and
interpreter that it had, not what a branch, a tag or a default says today. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_HIDDEN = "***"  # what redaction leaves of a secret
# As they were recorded. Code, image and interpreter are taken from what they turned out to be.
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
)


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """What a summary says of how to run its trial again."""

    words: tuple[str, ...]  # flags of a run, without method, workspace and label
    benchmark_flags: tuple[str, ...]
    lost: tuple[str, ...]  # what it does not say; with any, the words are not that trial


def rebuilt(document: Mapping[str, Any]) -> Rebuilt:
    """Read a summary. Never raises: what is missing is lost."""
    own = document.get("perfrun")
    if not isinstance(own, Mapping):
        return Rebuilt(words=(), benchmark_flags=(), lost=("the summary is not perfrun's",))
    info = document.get("benchmark_info") or {}
    flags = info.get("flags") or {}
    words = [f"--{name}={flags[name]}" for name in _TEXTS if flags.get(name)]
    lost = [f"the secret in --{name}" for name in _TEXTS if _HIDDEN in str(flags.get(name) or "")]
    for part in (_code(own, lost), _place(own, flags, lost), _variables(own, lost)):
        words += part
    if flags.get("debug"):
        words.append("--debug")
    after = tuple(own.get("benchmark_flags") or ())
    return Rebuilt(words=tuple(words), benchmark_flags=after, lost=tuple(lost))


def _code(own: Mapping[str, Any], lost: list[str]) -> list[str]:
    """Every checkout at its commit."""
    items = []
    for checkout in own.get("git") or ():
        name, url, commit = (checkout.get(key) or "" for key in ("directory", "url", "git_hash"))
        if not url or not commit:
            lost.append(f"{name}: was no git checkout")
        elif _HIDDEN in url:
            lost.append(f"{name}: the secret in its url")
        elif checkout.get("dirty"):
            lost.append(f"{name}: its local edits")
        items.append(f"{url};{checkout.get('asked_ref') or ''};{commit}")
    return [f"--git_repos={','.join(items)}"] if items else []


def _place(own: Mapping[str, Any], flags: Mapping[str, Any], lost: list[str]) -> list[str]:
    """The image by its id, or the interpreter by its path."""
    container = own.get("container")
    if container:
        image = container.get("image_id")
        if not image:
            lost.append(f"the id of the image {container.get('image')}")
        python = flags.get("image_python")
        return [f"--image={image}", *([f"--image_python={python}"] if python else [])]
    python = str(flags.get("python") or "")  # may be a script that starts the interpreter
    if not python.startswith("/"):
        python = ((own.get("environment") or {}).get("python") or {}).get("executable") or ""
    if not python:
        lost.append("the interpreter")
    return [f"--python={python}"]


def _variables(own: Mapping[str, Any], lost: list[str]) -> list[str]:
    env = own.get("env") or {}
    lost += [f"the secret in --env={name}" for name, value in env.items() if _HIDDEN in value]
    return [f"--env={name}={value}" for name, value in env.items()]
