"""The labels by which a container of a killed perfrun is found again, and its removal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

RUN_ID = "perfrun.run_id"
_PID = "perfrun.harness.pid"
_START = "perfrun.harness.start"  # in clock ticks since boot: with it, a pid is never another's
_BOOT = "perfrun.harness.boot"
_PID_SPACE = "perfrun.harness.pid_namespace"
_USER = "perfrun.harness.uid"


class Containers(Protocol):
    """The part of an engine that this needs."""

    def labelled(self, label: str) -> list[dict[str, Any]]: ...

    def remove(self, container: str) -> None: ...

    def labelled_volumes(self, label: str) -> list[dict[str, Any]]: ...

    def remove_volume(self, name: str) -> None: ...


def harness_labels(run_id: str) -> dict[str, str]:
    """What marks a container as this harness's."""
    return {
        RUN_ID: run_id,
        _PID: str(os.getpid()),
        _START: _start_ticks(os.getpid()) or "",
        _BOOT: _boot(),
        _PID_SPACE: _pid_space(),
        _USER: str(os.getuid()),
    }


def is_stray(labels: Mapping[str, str]) -> bool:
    """Whether the harness that made a container is certainly gone.

    Of a harness that this process could not see (another user's, or one in another pid namespace)
    nothing is certain.
    """
    if labels.get(_USER) != str(os.getuid()) or not labels.get(_PID, "").isdecimal():
        return False
    if labels.get(_BOOT) != _boot():
        return bool(labels.get(_BOOT)) and bool(_boot())
    if labels.get(_PID_SPACE) != _pid_space():
        return False
    return _start_ticks(int(labels[_PID])) != labels.get(_START)


def remove_strays(engine: Containers, notify: Callable[[str], None]) -> int:
    """Remove what killed harnesses left, and only that; return how many containers there were."""
    removed = 0
    for container in engine.labelled(RUN_ID):
        labels = container.get("Labels") or {}
        if not is_stray(labels):
            continue
        with contextlib.suppress(OSError):  # another perfrun may have been quicker
            engine.remove(container["Id"])
            removed += 1
            notify(
                f"removed container {container['Id'][:12]}, left behind by run {labels[RUN_ID]} "
                "whose perfrun was killed"
            )
    for volume in engine.labelled_volumes(RUN_ID):
        if is_stray(volume.get("Labels") or {}):
            with contextlib.suppress(OSError):
                engine.remove_volume(volume["Name"])
    return removed


def _start_ticks(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
