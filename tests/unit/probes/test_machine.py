"""Facts about the machine, compared with this kernel and with texts of other machines."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import asdict

import psutil
import pytest

from perfrun.probes import machine as probe
from perfrun.probes.machine import machine
from perfrun.summary.document import to_json

TWO_SOCKETS = """\
processor\t: 0
model name\t: Intel(R) Xeon(R) Processor: special @ 2.50GHz
physical id\t: 0

processor\t: 1
model name\t: Intel(R) Xeon(R) Processor: special @ 2.50GHz
physical id\t: 1
"""
ARM = """\
processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd
CPU implementer\t: 0x41
"""


def files(monkeypatch: pytest.MonkeyPatch, contents: dict[str, str]) -> None:
    """Let the probe read these files, a usual processor's description, and no others."""
    whole = {"/proc/cpuinfo": TWO_SOCKETS, **contents}
    monkeypatch.setattr(probe, "_read", lambda path: whole.get(path))


def test_this_machine_is_described_as_the_system_knows_it() -> None:
    found = machine()
    assert found.hostname == socket.gethostname()
    assert found.logical_cpu_count == psutil.cpu_count()
    assert found.usable_cpu_count == len(os.sched_getaffinity(0))
    assert found.memory_bytes == psutil.virtual_memory().total
    assert found.kernel == platform.release()
    assert found.architecture == platform.machine()
    assert found.cpu_model
    assert found.user
    to_json(asdict(found))


def test_the_state_at_the_start_is_psutils() -> None:
    found = machine().at_start
    theirs = psutil.virtual_memory()
    assert found is not None
    assert found.memory_used_bytes is not None
    assert found.memory_available_bytes is not None
    # Between two readings others may take or give back memory.
    assert abs(found.memory_available_bytes - theirs.available) < 0.05 * theirs.total
    assert found.memory_used_bytes + found.memory_available_bytes == theirs.total
    assert found.swap_used_bytes == pytest.approx(psutil.swap_memory().used, abs=2**24)


def test_without_meminfo_psutil_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "read_meminfo", lambda tree: None)  # as on macOS
    found = machine().at_start
    assert found is not None
    assert found.memory_used_bytes
    assert found.memory_available_bytes


def test_python_may_be_told_of_other_processors_than_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As PYTHON_CPU_COUNT and -X cpu_count do from Python 3.13 on.
    monkeypatch.setattr(os, "cpu_count", lambda: 12345)
    assert machine().logical_cpu_count == psutil.cpu_count() != 12345
    monkeypatch.setattr(os, "sysconf_names", {})
    monkeypatch.delattr(os, "sysconf")
    assert machine().logical_cpu_count == 12345


def test_sockets_and_model_are_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    files(monkeypatch, {"/proc/cpuinfo": TWO_SOCKETS})
    found = machine()
    assert found.cpu_socket_count == 2
    assert found.cpu_model == "Intel(R) Xeon(R) Processor: special @ 2.50GHz"


def test_a_processor_without_a_name_is_asked_elsewhere_and_its_sockets_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import cpuinfo

    asked = []

    def get_cpu_info() -> dict[str, str]:
        asked.append(1)
        return {"brand_raw": "Neoverse-N1", "flags": ["neon"]}

    monkeypatch.setattr(cpuinfo, "get_cpu_info", get_cpu_info)
    files(monkeypatch, {"/proc/cpuinfo": ARM})
    found = machine()
    assert (found.cpu_model, found.cpu_flags) == ("Neoverse-N1", "fp asimd")
    assert found.cpu_socket_count is None  # not PerfZero's 0
    assert asked == [1]
    files(monkeypatch, {"/proc/cpuinfo": ""})  # as on macOS
    assert machine().cpu_flags == "neon"


def test_a_named_processor_is_never_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    import cpuinfo

    def get_cpu_info() -> dict[str, str]:
        raise AssertionError("py-cpuinfo takes a second")

    monkeypatch.setattr(cpuinfo, "get_cpu_info", get_cpu_info)
    files(monkeypatch, {"/proc/cpuinfo": TWO_SOCKETS})
    assert machine().cpu_model


V2 = "/sys/fs/cgroup/memory.max"
V1 = "/sys/fs/cgroup/memory/memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ({}, None),
        ({V2: "max"}, None),
        ({V2: "1073741824"}, 2**30),
        ({V1: "9223372036854771712"}, None),  # cgroup v1's "no limit"
        ({V1: "536870912"}, 2**29),
    ],
)
def test_the_memory_limit_of_the_container_is_known_or_none(
    monkeypatch: pytest.MonkeyPatch, contents: dict[str, str], expected: int | None
) -> None:
    files(monkeypatch, contents)
    assert machine().cgroup_memory_limit_bytes == expected


QUOTA = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"
PERIOD = "/sys/fs/cgroup/cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ({}, None),
        ({"/sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ({"/sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ({QUOTA: "-1", PERIOD: "100000"}, None),
        ({QUOTA: "50000", PERIOD: "100000"}, 0.5),
        ({QUOTA: "50000"}, None),
        ({QUOTA: "50000", PERIOD: "0"}, None),
    ],
)
def test_the_cpu_limit_of_the_container_is_in_cores(
    monkeypatch: pytest.MonkeyPatch, contents: dict[str, str], expected: float | None
) -> None:
    files(monkeypatch, contents)
    assert machine().cgroup_cpu_limit == expected


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert machine().user == str(os.getuid())
