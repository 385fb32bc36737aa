"""The checks of `perfrun doctor`, on made-up machines and on this one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import CPUS, LAPTOP, STAT, built

from perfrun.doctor import check as distribution
from perfrun.doctor import memory_and_disk, processor, system
from perfrun.doctor.check import Check, Presence
from perfrun.probes import sysfs
from perfrun.probes.sysfs import Sysfs

FOUND, MISSING, UNKNOWN = Presence.FOUND, Presence.MISSING, Presence.UNKNOWN
CLOCKS = "/sys/devices/system/clocksource/clocksource0"
CheckFunction = Callable[[Sysfs], Check]


@pytest.mark.parametrize(
    ("check", "changed", "expected", "value", "mend"),
    [
        (processor.governor, {}, MISSING, "powersave", "policy*/scaling_governor"),
        (
            processor.governor,
            {f"{CPUS}/cpufreq/policy{n}/scaling_governor": "performance" for n in (0, 1)},
            FOUND,
            "performance",
            None,
        ),
        (
            processor.governor,
            {f"{CPUS}/cpufreq/policy0/scaling_governor": "performance"},
            MISSING,
            "performance, powersave",
            "tee",
        ),
        (processor.turbo, {}, MISSING, "on", "echo 1 | sudo tee"),
        (processor.turbo, {f"{CPUS}/intel_pstate/no_turbo": "1"}, FOUND, "off", None),
        (
            processor.turbo,
            {f"{CPUS}/intel_pstate/no_turbo": None, f"{CPUS}/cpufreq/boost": "1"},
            MISSING,
            "on",
            f"echo 0 | sudo tee {CPUS}/cpufreq/boost",
        ),
        (
            processor.turbo,
            {f"{CPUS}/intel_pstate/no_turbo": None, f"{CPUS}/cpufreq/policy1/boost": "1"},
            MISSING,
            "on",
            f"echo 0 | sudo tee {CPUS}/cpufreq/policy*/boost",
        ),
        (processor.smt, {}, MISSING, "on", "echo off | sudo tee"),
        (processor.smt, {f"{CPUS}/smt/active": "0"}, FOUND, "off", None),
        (processor.idle, {}, FOUND, "load 0.05 on 2 CPUs (limit 0.2)", None),
        (processor.idle, {"/proc/loadavg": "1.5 0 0 1/1 1"}, MISSING, "load 1.5", "ps -eo pcpu"),
        (processor.steal, {}, FOUND, "0.00%", None),
        (processor.steal, {"/proc/stat": STAT.format(steal=60)}, MISSING, "3.85%", None),
        (processor.bare_metal, {}, FOUND, "no hypervisor: LENOVO 21ABCDEF", None),
        (
            processor.bare_metal,
            {"/proc/cpuinfo": "flags : fpu hypervisor"},
            MISSING,
            "virtual machine",
            None,
        ),
        (
            processor.bare_metal,
            {"/proc/cpuinfo": "Features : fp asimd", "/sys/class/dmi/id/sys_vendor": "Amazon EC2"},
            MISSING,
            "Amazon EC2",
            None,
        ),
        (memory_and_disk.free_memory, {}, FOUND, "5,859 of 7,812 MiB", None),
        (
            memory_and_disk.free_memory,
            {"/proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 700000 kB\n"},
            MISSING,
            "684 of 7,812 MiB",
            "ps -eo rss",
        ),
        (
            memory_and_disk.free_memory,
            {"/proc/meminfo": "MemTotal: 8000 kB\n"},
            UNKNOWN,
            None,
            None,
        ),
        (memory_and_disk.no_swap, {}, FOUND, "10 of 1,953 MiB used", None),
        (
            memory_and_disk.no_swap,
            {"/proc/meminfo": "MemTotal: 1 kB\nSwapTotal: 999999 kB\nSwapFree: 1 kB\n"},
            MISSING,
            "977 of 977 MiB used",
            "sudo swapoff -a",
        ),
        (memory_and_disk.huge_pages, {}, FOUND, "madvise", None),
        (system.cgroups, {}, FOUND, "version 2", None),
        (
            system.cgroups,
            {"/sys/fs/cgroup/cgroup.controllers": None, "/sys/fs/cgroup/memory/tasks": ""},
            MISSING,
            "version 1",
            "sudo update-grub",
        ),
        (system.energy, {}, MISSING, "none here", None),
        (
            system.energy,
            {"/sys/class/powercap/intel-rapl:0/energy_uj": "12345"},
            FOUND,
            "readable",
            None,
        ),
        (system.aslr, {}, FOUND, "2", None),
        (system.aslr, {"/proc/sys/kernel/randomize_va_space": "0"}, MISSING, "0", "sudo sysctl"),
        (system.clock_source, {}, FOUND, "tsc", None),
        (
            system.clock_source,
            {f"{CLOCKS}/current_clocksource": "hpet"},
            MISSING,
            "hpet",
            "echo tsc | sudo tee",
        ),
        (system.container, {}, FOUND, "not in a container", None),
        (system.container, {"/run/.containerenv": ""}, FOUND, "in Podman", None),
    ],
)
def test_a_machine_is_judged_by_its_files(
    check: CheckFunction,
    changed: dict[str, str | None],
    expected: Presence,
    value: str | None,
    mend: str | None,
    tmp_path: Path,
) -> None:
    found = check(built(tmp_path, {**LAPTOP, **changed}))
    assert found.presence is expected
    assert (found.value is None) if value is None else (value in (found.value or ""))
    assert (found.mend is None) if mend is None else (mend in (found.mend or ""))
    assert found.why


@pytest.mark.parametrize(
    ("level", "user", "expected"), [("4", 1000, MISSING), ("2", 1000, FOUND), ("4", 0, FOUND)]
)
def test_counters_may_be_used_by_root_and_where_the_kernel_lets_users(
    level: str, user: int, expected: Presence, tmp_path: Path
) -> None:
    tree = built(tmp_path, {**LAPTOP, "/proc/sys/kernel/perf_event_paranoid": level})
    assert system.perf(tree, user=user).presence is expected


def test_a_processor_without_counters_cannot_be_mended(tmp_path: Path) -> None:
    tree = built(tmp_path, {**LAPTOP, "/sys/bus/event_source/devices/cpu/type": None})
    found = system.perf(tree, user=1000)
    assert (found.presence, found.mend) == (MISSING, None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_energy_counters_that_only_root_reads_can_be_opened(tmp_path: Path) -> None:
    tree = built(tmp_path, {"/sys/class/powercap/intel-rapl:0/energy_uj": "1"})
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").chmod(0)
    found = system.energy(tree)
    assert (found.presence, found.value) == (MISSING, "not readable by this user")
    assert "chmod a+r" in (found.mend or "")


def test_energy_counters_that_cannot_be_read_can_be_opened(tmp_path: Path) -> None:
    tree = built(tmp_path, {"/sys/class/powercap/intel-rapl:0/energy_uj/is_a_folder": ""})
    found = system.energy(tree)
    assert (found.presence, found.value) == (MISSING, "not readable by this user")
    assert "chmod a+r" in (found.mend or "")


def test_a_machine_without_any_file_makes_nothing_up(tmp_path: Path) -> None:
    tree = Sysfs(str(tmp_path / "nowhere"))
    checks = [*processor.processor_checks(tree), *system.system_checks(tree)]
    checks += memory_and_disk.storage_checks(tree, tmp_path)
    told = {check.name for check in checks if check.presence is not UNKNOWN}
    # RAPL and containment are folders that are there or not; the rest does not come from files.
    assert told <= {"rapl", "in_container", "workspace", "disk", "clock_synchronised"}
    assert not [check.mend for check in checks if check.mend and check.name in told - {"disk"}] or (
        "clock_synchronised" in told
    )


def test_files_with_nonsense_are_not_known(tmp_path: Path) -> None:
    tree = built(tmp_path, dict.fromkeys(LAPTOP, "\0nonsense \xff\n\n: :\n"))
    for check in [
        *processor.processor_checks(tree),
        *memory_and_disk.storage_checks(tree, tmp_path),
    ]:
        assert isinstance(check.presence, Presence)
    assert sysfs.cpu_times(tree) is None
    assert sysfs.read_meminfo(tree) is None
    assert sysfs.load_1min(tree) is None


def test_cpu_times_of_a_sandbox_that_shows_zeros_are_unknown(tmp_path: Path) -> None:
    zeros = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n"
    assert sysfs.cpu_times(built(tmp_path, {"/proc/stat": zeros})) is None


def test_a_laptop_is_read_as_it_is(tmp_path: Path) -> None:
    tree = built(tmp_path, LAPTOP)
    times = sysfs.cpu_times(tree)
    assert times is not None
    assert (times.cpus, times.busy_s, times.interrupts_s, times.idle_s) == (2, 15.0, 0.5, 81.0)
    assert sysfs.frequency_khz(tree) == 2_900_000
    assert sysfs.top_frequencies_khz(tree) == (4_700_000, 4_700_000)
    assert sysfs.core_count(tree) == 1


def test_this_machine_is_read_without_an_error() -> None:
    tree = Sysfs()
    times, memory = sysfs.cpu_times(tree), sysfs.read_meminfo(tree)
    assert times is not None
    assert memory is not None
    assert times.cpus == os.cpu_count()
    assert memory.total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert system.clock_is_synchronised() in (True, False, None)


def test_the_clock_discipline_is_the_one_that_the_system_reports() -> None:
    """timedatectl and adjtimex ask the same kernel; without the command there is nothing to ask."""
    try:
        said = subprocess.run(
            ["timedatectl", "show", "--property=NTPSynchronized", "--value"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no timedatectl that answers")
    assert system.clock_is_synchronised() is (said == "yes")


def test_a_workspace_that_is_not_there_yet_is_judged_by_the_folder_above(tmp_path: Path) -> None:
    workspace = tmp_path / "not" / "yet"
    found = memory_and_disk.writable(workspace)
    assert (found.presence, found.value) == (FOUND, f"{workspace} (to be made)")
    assert not (tmp_path / "not").exists()
    # Others may write to this disk meanwhile.
    before, there = (
        memory_and_disk.free_disk_bytes(tmp_path),
        memory_and_disk.free_disk_bytes(workspace),
    )
    after = memory_and_disk.free_disk_bytes(tmp_path)
    assert before is not None
    assert there is not None
    assert after is not None
    assert 0.9 * min(before, after) <= there <= 1.1 * max(before, after)


def test_a_file_in_the_place_of_the_workspace_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = memory_and_disk.writable(tmp_path / "file" / "below")
    assert found.presence is MISSING
    assert "--workspace" in (found.mend or "")


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian\n", "sudo apt-get install docker.io"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "sudo apt-get install docker.io"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "sudo dnf install moby"),
        ("ID=alpine\n", "sudo apk add docker"),
        ("ID=unheard-of\n", None),
        ('ID="open quote\n', None),
        (None, None),
    ],
)
def test_installing_is_said_in_the_words_of_the_distribution(
    release: str | None, command: str | None, tmp_path: Path
) -> None:
    packages = {"*": "docker", "debian": "docker.io", "ubuntu": "docker.io", "rhel": "moby"}
    tree = built(tmp_path, {"/etc/os-release": release})
    assert distribution.install_command(tree, packages) == command


def test_the_command_for_grub_edits_the_line_that_grub_reads(tmp_path: Path) -> None:
    tree = built(tmp_path, LAPTOP)
    command = distribution.kernel_argument_command(tree, "a.b=1")
    edit = command.partition(" && ")[0].removeprefix("sudo ")
    place = tmp_path / "etc" / "default" / "grub"
    subprocess.run(edit.replace("/etc/default/grub", str(place)), shell=True, check=True)
    assert place.read_text() == 'GRUB_CMDLINE_LINUX="a.b=1 quiet"\n'
