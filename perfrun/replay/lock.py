"""`pylock.toml` of an environment: PEP 751, the standard's file of exact versions and hashes."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfrun.replay.wheels import INDEX, Wheel


def lock_text(wheels: Sequence[Wheel], python: tuple[str, str], about: Mapping[str, str]) -> str:
    """Return the lock of wheels that lie in `wheels/` beside it, or at an index.

    `about` goes into the table `[tool.perfrun]`, `origin` of each wheel into the one of its
    package.
    """
    version, implementation = python
    marker = (
        f'python_version == "{version}" and implementation_name == "{implementation}" and '
        f'sys_platform == "{sys.platform}" and platform_machine == "{platform.machine()}"'
    )
    lines = [
        'lock-version = "1.0"',
        _pair("requires-python", f"=={version}.*"),
        f"environments = [{_text(marker)}]",
        'created-by = "perfrun"',
    ]
    for wheel in sorted(wheels, key=lambda one: one.name):
        lines += ["", "[[packages]]", *_package(wheel)]
    lines += ["", "[tool.perfrun]", *(_pair(name, value) for name, value in about.items())]
    return "".join(f"{line}\n" for line in lines)


def _package(wheel: Wheel) -> Iterable[str]:
    yield _pair("name", wheel.name)
    yield _pair("version", wheel.version)
    place = {"url": wheel.url} if wheel.origin == INDEX and wheel.url else {}
    file = {
        "name": wheel.file,
        **(place or {"path": f"wheels/{wheel.file}"}),
        "size": wheel.size,
        "hashes": {"sha256": wheel.sha256},
    }
    yield f"wheels = [{_inline(file)}]"
    own = {"origin": wheel.origin, "source": wheel.source, "note": wheel.note}
    yield f"tool = {_inline({'perfrun': {name: one for name, one in own.items() if one}})}"


def _pair(name: str, value: str) -> str:
    return f"{name} = {_text(value)}"


def _text(value: str) -> str:
    """Return a text as TOML writes it, which is JSON's way but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_inline(one)}" for name, one in value.items()) + "}"
    return _text(value) if isinstance(value, str) else str(value)
