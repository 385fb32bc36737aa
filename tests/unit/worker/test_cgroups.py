"""Control groups: real ones of this machine, and the texts of kernels and versions it has not."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfrun.worker.cgroups import (
    Cgroup,
    PeakSplit,
    _is_root,
    find_cgroup,
    locate,
    read_pressure,
    whole_number,
)

MIB = 2**20
V1 = Path("/sys/fs/cgroup/memory")
ALLOCATE = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
block = bytearray(b"x") * (200 << 20)
print(1, flush=True); input(); del block
print(2, flush=True); input()
"""


def text(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder


@pytest.fixture
def group() -> Iterator[Path]:
    """A fresh group of the memory controller (v1)."""
    folder = V1 / f"perfrun test {uuid.uuid4().hex}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("no cgroup v1 in which this user may make a group")
    yield folder
    folder.rmdir()


@pytest.mark.root
def test_the_peak_of_a_real_group_is_what_was_allocated_in_it(group: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", ALLOCATE, str(group / "cgroup.procs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    found = find_cgroup(str(child.pid))
    assert found is not None
    assert found.path == str(group)
    peak = PeakSplit(found)
    peak.look()
    child.stdin.write("\n")
    child.stdin.flush()
    child.stdout.readline()
    peak.look()  # less is in use now, so what was seen at the peak stays
    now = found.read()
    child.communicate("\n")

    # Less is charged than the process has mapped: the interpreter was read by others before.
    assert 200 * MIB < now["memory_peak_bytes"] < 215 * MIB
    assert now["memory_now_bytes"] < 20 * MIB
    assert now["anon_bytes"] < 20 * MIB
    assert 200 * MIB < (peak.split["anon_bytes"] or 0) < 215 * MIB
    assert abs((peak.seen_bytes or 0) - now["memory_peak_bytes"]) < 0.03 * now["memory_peak_bytes"]
    assert now["version"] == 1
    assert now["oom_kills"] == 0
    assert now["memory_limit_bytes"] is None


def test_this_process_is_in_some_group_or_the_kernel_has_none() -> None:
    found = find_cgroup()
    if not Path("/proc/self/cgroup").exists():
        assert found is None
        return
    assert found is not None
    assert Path(found.path or "").is_dir()
    assert find_cgroup("no such process") is None


def test_the_root_is_no_group_and_has_no_figures() -> None:
    if not (V1 / "release_agent").exists():
        pytest.skip("no root of a cgroup v1 hierarchy")
    root = Cgroup(1, memory=str(V1), cpu="/sys/fs/cgroup/cpu", unified="/sys/fs/cgroup/unified")
    assert _is_root(root.path or "", 1)
    figures = root.read()
    assert {key for key, value in figures.items() if value is not None} == {"version", "path"}


def test_cgroup_v2_in_full(tmp_path: Path) -> None:
    place = tmp_path / "a place\nwith odd characters"
    text(place, cgroup__procs="", memory__max="max\n")
    text(place / "user.slice", cgroup__procs="", memory__max="600000000\n")
    folder = text(
        place / "user.slice" / "trial 1.scope",
        cgroup__procs="12\n",
        cgroup__events="populated 1\nfrozen 0\n",
        memory__max="800000000\n",
        memory__peak="512000000\n",
        memory__current="9000\n",
        memory__stat="anon 4000\nfile 3000\nkernel 500\nshmem 1000\n",
        memory__events="low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\n",
        cpu__stat="usage_usec 2500000\nuser_usec 2000000\nnr_periods 40\nnr_throttled 7\n"
        "throttled_usec 1250000\n",
        cpu__pressure="some avg10=1.57 avg60=1.30 avg300=1.01 total=1500000\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n",
        io__pressure="some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    )
    written = str(place).replace(" ", "\\040").replace("\n", "\\012")
    mounts = (
        "25 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        f"30 25 0:29 / {written} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    found = locate("0::/user.slice/trial 1.scope\n", mounts)
    assert found is not None
    assert not _is_root(found.path or "", 2)
    assert found.read() == {
        "version": 2,
        "path": str(folder),
        "memory_peak_bytes": 512000000,
        "memory_now_bytes": 9000,
        "memory_limit_bytes": 600000000,  # of the parent, which is the smaller
        "anon_bytes": 4000,
        "file_bytes": 3000,
        "shmem_bytes": 1000,
        "oom_kills": 1,
        "cpu_usage_s": 2.5,
        "throttled_s": 1.25,
        "throttled_periods": 7,
        "cpu_periods": 40,
        "cpu_pressure_s": 1.5,
        "cpu_pressure_full_s": 0.25,
        "memory_pressure_s": None,  # the file is not there
        "memory_pressure_full_s": None,
        "io_pressure_s": 0.0,
        "io_pressure_full_s": None,
    }


def test_a_container_of_cgroup_v1_sees_its_own_folders(tmp_path: Path) -> None:
    memory = text(
        tmp_path / "memory",
        memory__max_usage_in_bytes="300\n",
        memory__usage_in_bytes="200\n",
        memory__stat="cache 5\nrss 7\ntotal_cache 50\ntotal_rss 70\ntotal_shmem 20\n"
        "hierarchical_memory_limit 9223372036854771712\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    )
    both = text(
        tmp_path / "cpu,cpuacct",
        cpu__stat="nr_periods 9\nnr_throttled 4\nthrottled_time 2000000000\n",
        cpuacct__usage="3000000000\n",
    )
    mounts = (
        f"78 77 0:29 /docker/ab {both} ro - cgroup cgroup rw,cpu,cpuacct\n"
        f"81 77 0:32 /docker/ab {memory} ro - cgroup cgroup rw,memory\n"
    )
    found = locate("4:memory:/docker/ab\n2:cpu,cpuacct:/docker/ab\n0::/docker/ab\n", mounts)
    assert found is not None
    figures = found.read()
    assert figures["memory_peak_bytes"] == 300
    assert figures["memory_limit_bytes"] is None
    assert (figures["anon_bytes"], figures["file_bytes"], figures["shmem_bytes"]) == (70, 50, 20)
    assert figures["oom_kills"] == 2
    assert (figures["cpu_usage_s"], figures["throttled_s"]) == (3.0, 2.0)
    assert (figures["throttled_periods"], figures["cpu_periods"]) == (4, 9)
    assert figures["cpu_pressure_s"] is None


@pytest.mark.parametrize(
    ("groups", "mounts"),
    [
        ("", ""),
        ("0::/\n", ""),  # no hierarchy is mounted here
        ("0::/../../other\n", "30 25 0:29 / {place} rw - cgroup2 cgroup2 rw\n"),
        ("0::/other\n", "30 25 0:29 /docker/ab {place} rw - cgroup2 cgroup2 rw\n"),
        ("0::/gone\n", "30 25 0:29 / {place} rw - cgroup2 cgroup2 rw\n"),
        ("garbage", "garbage - cgroup"),
    ],
)
def test_a_group_that_cannot_be_seen_from_here_is_none(
    groups: str, mounts: str, tmp_path: Path
) -> None:
    assert locate(groups, mounts.format(place=tmp_path)) is None


def test_pressure_of_the_machine_is_read_by_the_same_function(tmp_path: Path) -> None:
    assert read_pressure(str(tmp_path / "missing")) == (None, None)
    if Path("/proc/pressure/cpu").exists():
        some, _ = read_pressure("/proc/pressure/cpu")
        assert some is not None
        assert some >= 0


@pytest.mark.parametrize(
    "text", ["\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT ONE}", "1" * 5000, "-1", "", "1 "]
)
def test_what_is_no_decimal_number_of_64_bits_is_no_number(text: str) -> None:
    assert whole_number(text) is None


def test_a_decimal_number_is_read() -> None:
    assert whole_number("18446744073709551615") == 2**64 - 1
