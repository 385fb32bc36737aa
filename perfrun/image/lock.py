"""A lock: the versions of an image, read back to build such an image again.

The file is an image's `/opt/perfrun/image.json` (also the label `perfrun.lock`), or any summary
made in the image, whose `setup_info` is the same document.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping

from perfrun.errors import UsageError
from perfrun.image.spec import NAMED_BUILD_ARGS

ENVIRONMENTS = ("framework", "perfrun")
TENSORFLOW_NAMES = ("tensorflow-cpu", "tensorflow-rocm", "tensorflow", "tf-nightly")
# They come with the base image's Python or are the checkout itself: pip does not choose them.
NOT_LOCKED = ("pip", "setuptools", "wheel", "perfrun")
# A name or a version: each makes a line of a file that pip reads, where an option could follow.
_WORD = re.compile(r"[\w.!+-]+", re.ASCII)


@dataclass(frozen=True)
class Lock:
    """Facts and versions of one image; an empty lock pins nothing."""

    facts: dict[str, str] = field(default_factory=dict)
    distributions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def framework_spec(self, framework: str) -> str:
        """Return the pip specs of the locked framework: the defaults may be newer."""
        found = self.distributions.get("framework", {})
        wanted = {"torch": ("torch",), "tensorflow": TENSORFLOW_NAMES, "jax": ("jax",)}
        asked = ("torch", "tensorflow") if framework == "both" else (framework,)
        groups = [names for each, names in wanted.items() if each in asked]
        names = [name for group in groups for name in group if name in found][: len(groups)]
        return "; ".join(f"{name}=={found[name].partition('+')[0]}" for name in names)

    def constraints(self) -> dict[str, str]:
        """Return the text of a pip constraints file for each environment."""
        return {
            environment: "".join(f"{name}=={version}\n" for name, version in locked(found).items())
            for environment, found in self.distributions.items()
        }


def locked(distributions: Mapping[str, str]) -> dict[str, str]:
    """Return the distributions that a lock pins."""
    return {name: each for name, each in distributions.items() if name.lower() not in NOT_LOCKED}


def read_lock(path: Path) -> Lock:
    """Read a lock from a file. Raises UsageError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--lock={path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise UsageError(f"--lock={path}: is no JSON file") from None
    info = document.get("setup_info", document) if isinstance(document, dict) else None
    if info is None or not is_image_info(info):
        raise UsageError(
            f"--lock={path}: is neither an image's image.json nor a summary of a run in an image"
        )
    pinned = [one for each in ENVIRONMENTS for one in info["distributions"][each].items()]
    for name, version in pinned:
        if not (_WORD.fullmatch(name) and _WORD.fullmatch(version)):
            raise UsageError(f"--lock={path}: {name!r} {version!r} is no distribution and version")
    facts = {name: str(info[name]) for name in NAMED_BUILD_ARGS if info.get(name)}
    return Lock(facts, {name: info["distributions"][name] for name in ENVIRONMENTS})


def is_image_info(info: Any) -> bool:
    """Return True for a document as scripts/container/record_image.py writes it."""
    distributions = info.get("distributions") if isinstance(info, dict) else None
    if not isinstance(distributions, dict):
        return False
    found = (distributions.get(name) for name in ENVIRONMENTS)
    return all(
        isinstance(each, dict) and all(isinstance(version, str) for version in each.values())
        for each in found
    )


def differences(
    lock: Mapping[str, Mapping[str, str]], found: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    """Return the differences between an image and its lock as text; () when there are none."""
    words = []
    for environment in ENVIRONMENTS:
        wanted, present = locked(lock[environment]), locked(found[environment])
        for name in sorted({*wanted, *present}, key=str.lower):
            if wanted.get(name) != present.get(name):
                words.append(
                    f"{environment}: {name} {present.get(name, 'missing')} "
                    f"instead of {wanted.get(name, 'nothing')}"
                )
    return tuple(words)
