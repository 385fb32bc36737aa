"""The fingerprint of the node of a trial: what must be equal before two nodes are compared.

The host's name is no part of it, nor is what changes from trial to trial. Facts that a summary does
not have are left out, so a summary of another tool has fewer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.summary.series_identity import is_number, memory_class_gib, section, text

_LENGTH = 6  # hexadecimal digits: of a thousand kinds of nodes two share them in 3 % of all fleets
_MIB = 2**20
Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """The facts about the node of a trial, by name, and a short digest of each kind."""

    hardware: Facts
    software: Facts

    @property
    def hardware_digest(self) -> str:
        """The digest of the hardware; equal where all facts are."""
        return _digest(self.hardware)

    @property
    def software_digest(self) -> str:
        """The digest of the software."""
        return _digest(self.software)

    @property
    def digest(self) -> str:
        """Both, as `9c1f02-77ab31`."""
        return f"{self.hardware_digest}-{self.software_digest}"


def fingerprint(document: Mapping[str, Any]) -> Fingerprint:
    """Return the fingerprint of a summary, or of the part of it that the index keeps."""
    system, own = section(document, "system_info"), section(document, "perfrun")
    machine, container = section(own, "machine"), section(own, "container")
    devices = section(machine, "accelerators")
    framework, environment = section(document, "ml_framework_info"), section(own, "environment")
    name = text(framework.get("name"))
    return Fingerprint(
        hardware=_facts(
            {
                "platform": system.get("platform_name"),
                "processor": system.get("cpu_model"),
                "sockets": system.get("cpu_socket_count"),
                "cores": system.get("physical_cpu_count"),
                "threads": system.get("logical_cpu_count"),
                "numa_nodes": machine.get("numa_node_count"),
                "architecture": machine.get("architecture"),
                # The kernel reserves a few percent of the memory, which differ between versions.
                "memory_gib": memory_class_gib(machine.get("memory_bytes")),
                "accelerators": _accelerators(system, devices),
            }
        ),
        software=_facts(
            {
                "kernel": machine.get("kernel"),
                "operating_system": machine.get("operating_system"),
                "microcode": machine.get("microcode"),
                "governor": machine.get("frequency_governor"),
                "driver": system.get("accelerator_driver_version"),
                "python": section(environment, "python").get("version"),
                "framework": f"{name} {text(framework.get('version'))}".strip()
                if name not in ("", "none")
                else "",
                "image": container.get("image_id"),
            }
        ),
    )


def _accelerators(system: Mapping[str, Any], devices: Mapping[str, Any]) -> str:
    """Return `8 x NVIDIA H100, 79.6 GiB`; '' without any."""
    model = text(system.get("accelerator_model"))
    if not model:
        return ""
    sizes = devices.get("memory_bytes")
    known = [size for size in sizes if is_number(size)] if isinstance(sizes, list) else []
    each = f", {max(known) // _MIB:g} MiB" if known else ""
    return f"{text(system.get('accelerator_count')) or 1} x {model}{each}"


def _facts(values: Mapping[str, Any]) -> Facts:
    """Return the facts that are known, as texts."""
    shown = {
        name: f"{value:g}" if is_number(value) else text(value) for name, value in values.items()
    }
    return tuple((name, value) for name, value in shown.items() if value)


def _digest(facts: Facts) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:_LENGTH]
