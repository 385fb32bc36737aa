"""The flags of trials in containers, as values: the image, and the limits of a trial."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.errors import UsageError

# Flags that mean something only with --image, in the order of the help.
COMPANIONS = (
    "image_python",
    "trial_network",
    "cpuset",
    "memory",
    "shm_size",
    "gpus",
    "pids_limit",
)
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = r"(?i)(\d{1,18}(?:\.\d{1,18})?)\s*([bkmgt]?)(?:i?b)?"
_CPUS = r"(?a)\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*"
_NETWORK = r"(?a)[A-Za-z0-9][\w.-]*"
_DEVICE = r"(?a)\d{1,4}|(?!\d+$)[\w./:=-]+"
_LEAST_MEMORY = 6 * 2**20  # Docker refuses less
DEFAULT_SHM_BYTES = 2 * 2**30  # the engine's own 64 MiB are too little for data loaders
DEFAULT_PIDS = 4096
_MOST_PIDS = 2**22  # the kernel's PID_MAX_LIMIT


@dataclass(frozen=True, kw_only=True)
class Containment:
    """The container of a trial, as asked for."""

    image: str  # as given: name, name:tag, name@digest or id
    python: str | None = None  # interpreter in the image; None: the launcher finds one
    network: str = "none"
    cpuset: str | None = None  # in the kernel's notation: 0,2-3
    memory_bytes: int | None = None
    shm_bytes: int = DEFAULT_SHM_BYTES
    gpus: str | None = None  # all, a count, or a comma list of device ids
    pids: int = DEFAULT_PIDS


def parse_containment(given: Mapping[str, Any]) -> Containment | None:
    """Turn the flags' texts into values; None without --image. Raises UsageError."""
    image = given.get("image") or None
    if image is None:
        for name in COMPANIONS:
            if given.get(name):
                raise UsageError(f"--{name} is about a trial's container: name one with --image")
        return None
    if given.get("python"):
        raise UsageError(
            "--python names an interpreter of this host; with --image, use --image_python"
        )
    return Containment(
        image=_image(image),
        python=_line("--image_python", given.get("image_python")),
        network=_network(given.get("trial_network")),
        cpuset=_cpuset(given.get("cpuset")),
        memory_bytes=_memory(given.get("memory")),
        shm_bytes=parse_size("--shm_size", given.get("shm_size")) or DEFAULT_SHM_BYTES,
        gpus=_gpus(given.get("gpus")),
        pids=_pids(given.get("pids_limit")),
    )


def parse_size(flag: str, text: str | None) -> int | None:
    """Parse `512m`, `4g`, `1.5GiB` or a number of bytes; all units are powers of 1024."""
    if not text:
        return None
    found = re.fullmatch(_SIZE, text.strip())
    size = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if size <= 0:
        raise UsageError(f"{flag}={text}: not a size; write a number and k, m or g, as 512m or 4g")
    return size


def cpus_of(cpuset: str) -> frozenset[int]:
    """Return the numbers of the processors that a checked cpuset names."""
    cpus: set[int] = set()
    for item in cpuset.split(","):
        first, _, last = item.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def _image(text: str) -> str:
    if text.startswith("-") or any(c.isspace() or not c.isprintable() for c in text):
        raise UsageError(f"--image={text!r}: not the name of an image, like perfrun/torch:2.13")
    return text


def _line(flag: str, text: str | None) -> str | None:
    if text and len(text.splitlines()) > 1:
        raise UsageError(f"{flag}={text!r}: must be one line")
    return text or None


def _network(text: str | None) -> str:
    name = text or "none"
    if name == "host":
        raise UsageError(
            "--trial_network=host would open this host's own network to the trial; "
            "use bridge, or the name of a network"
        )
    if not re.fullmatch(_NETWORK, name):
        raise UsageError(f"--trial_network={name!r}: not the name of a network, like bridge")
    return name


def _cpuset(text: str | None) -> str | None:
    if not text:
        return None
    plain = text.replace(" ", "")
    if not re.fullmatch(_CPUS, plain) or any(
        int(last) < int(first)
        for first, dash, last in (item.partition("-") for item in plain.split(","))
        if dash
    ):
        raise UsageError(f"--cpuset={text}: not a list of processors, like 0,2-3")
    if any(int(number) > 65535 for number in re.split(r"[,-]", plain)):
        raise UsageError(f"--cpuset={text}: no machine has so many processors")
    return plain


def _memory(text: str | None) -> int | None:
    size = parse_size("--memory", text)
    if size is not None and size < _LEAST_MEMORY:
        raise UsageError(f"--memory={text}: the engine takes no less than 6m")
    return size


def _gpus(text: str | None) -> str | None:
    if not text:
        return None
    items = [item.strip() for item in text.split(",")]
    if not all(re.fullmatch(_DEVICE, item) for item in items) or text.strip() == "0":
        raise UsageError(f"--gpus={text}: must be all, a number of devices, or device=ID,...")
    return ",".join(items)


def _pids(text: str | None) -> int:
    if not text:
        return DEFAULT_PIDS
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not 16 <= int(text) <= _MOST_PIDS:
        raise UsageError(f"--pids_limit={text}: must be a whole number from 16 to {_MOST_PIDS}")
    return int(text)
