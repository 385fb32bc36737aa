"""Facts about the processor, compared with lscpu and psutil here, and with trees of others."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest
from machines import CPUS, LAPTOP, built

from perfrun.probes.processor import (
    cpu_caches,
    cpu_flags,
    cpu_frequency,
    cpu_microcode,
    numa_node_count,
    read_cpuinfo,
)
from perfrun.probes.sysfs import Sysfs

HERE = read_cpuinfo(Sysfs().text("/proc/cpuinfo"))


@pytest.mark.skipif(shutil.which("lscpu") is None, reason="lscpu is not installed")
def test_the_caches_of_this_machine_are_those_of_lscpu() -> None:
    command = ["lscpu", "--json", "--bytes", "--caches=NAME,ONE-SIZE,LEVEL,TYPE"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    listed = json.loads(done.stdout)["caches"] if done.returncode == 0 and done.stdout else []
    theirs = [(int(c["level"]), c["type"].lower(), int(c["one-size"])) for c in listed]
    found = [(cache.level, cache.kind, cache.size_bytes) for cache in cpu_caches(Sysfs())]
    assert found == sorted(theirs)


def test_the_flags_of_this_machine_are_those_of_py_cpuinfo() -> None:
    from cpuinfo import cpuinfo  # the part that reads /proc: the whole takes a second

    theirs = cpuinfo._get_cpu_info_from_proc_cpuinfo().get("flags") or []
    assert sorted((cpu_flags(HERE) or "").split()) == sorted(theirs)


def test_the_frequency_here_is_psutils_or_says_why_there_is_none() -> None:
    found, theirs = cpu_frequency(Sysfs(), HERE), psutil.cpu_freq()
    if found.max_mhz is not None:
        assert theirs is not None
        assert found.max_mhz >= theirs.max  # psutil gives the mean over the policies
    else:
        assert found.reason


def test_with_cpufreq_all_three_are_known(tmp_path: Path) -> None:
    low = {f"{CPUS}/cpufreq/policy{n}/scaling_min_freq": f"{n + 4}00000\n" for n in (0, 1)}
    found = cpu_frequency(built(tmp_path, {**LAPTOP, **low}), ())
    assert (found.current_mhz, found.min_mhz, found.max_mhz) == (2900, 400, 4700)
    assert found.reason is None


@pytest.mark.parametrize(
    ("text", "current", "reason"),
    [
        (
            "cpu MHz\t: 2596.122\nflags\t: fpu hypervisor\n",
            None,
            "the host of this virtual machine decides; /proc/cpuinfo has a constant 2596.12 MHz",
        ),
        ("flags\t: hypervisor\n", None, "the host of this virtual machine decides"),
        ("cpu MHz\t: 800.000\nflags\t: fpu\n", 800.0, "the kernel has no cpufreq here"),
        ("cpu MHz\t: fast\n", None, "the kernel has no cpufreq here"),
    ],
)
def test_without_cpufreq_the_reason_is_said(
    tmp_path: Path, text: str, current: float | None, reason: str
) -> None:
    found = cpu_frequency(built(tmp_path, {}), read_cpuinfo(text))
    assert (found.current_mhz, found.min_mhz, found.max_mhz) == (current, None, None)
    assert found.reason == reason


def cache(number: int, level: str, kind: str, size: str, cpus: str) -> dict[str, str]:
    folder = f"{CPUS}/cpu0/cache/index{number}"
    values = {"level": level, "type": kind, "size": size, "shared_cpu_list": cpus}
    return {f"{folder}/{name}": f"{value}\n" for name, value in values.items()}


def test_caches_say_how_many_processors_share_them(tmp_path: Path) -> None:
    files = {
        **cache(0, "1", "Data", "48K", "0,64"),
        **cache(1, "1", "Instruction", "32K", "0,64"),
        **cache(2, "2", "Unified", "1024K", ""),
        **cache(3, "3", "Unified", "32M", "0-7,64-71"),
        **cache(4, "4", "Unified", "some", "0"),  # as firmware that does not tell
    }
    found = cpu_caches(built(tmp_path, files))
    assert [(c.level, c.kind, c.size_bytes, c.shared_by) for c in found] == [
        (1, "data", 48 * 2**10, 2),
        (1, "instruction", 32 * 2**10, 2),
        (2, "unified", 2**20, None),
        (3, "unified", 2**25, 16),
    ]
    assert cpu_caches(built(tmp_path / "none", {})) == ()


def test_microcode_and_numa_nodes_are_those_that_the_kernel_names(tmp_path: Path) -> None:
    assert cpu_microcode(read_cpuinfo("model name\t: x\nmicrocode\t: 0x2b000571\n")) == "0x2b000571"
    assert cpu_microcode(read_cpuinfo("model name\t: x\n")) is None
    online = "/sys/devices/system/node/online"
    counts = [
        numa_node_count(built(tmp_path / str(at), {online: f"{text}\n"}))
        for at, text in enumerate(("0", "0-3", "0,2-3", "many"))
    ]
    assert counts == [1, 4, 3, None]
    assert numa_node_count(built(tmp_path / "none", {})) is None
