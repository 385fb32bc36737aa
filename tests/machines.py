"""Made-up machines: trees of /proc, /sys and /etc in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfrun.probes.sysfs import Sysfs

CPUS = "/sys/devices/system/cpu"
STAT = "cpu  1000 0 500 8000 100 20 30 {steal} 0 0\ncpu0 1 0 0 0 0 0 0 0 0 0\ncpu1 1\nintr 5\n"
LAPTOP = {
    "/proc/stat": STAT.format(steal=0),
    "/proc/loadavg": "0.05 0.10 0.20 1/300 4242\n",
    "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu tsc sse2\n",
    "/proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\n"
    "SwapTotal: 2000000 kB\nSwapFree: 1990000 kB\n",
    "/proc/vmstat": "nr_free_pages 5\npswpin 10\npswpout 20\n",
    "/proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n",
    "/proc/sys/kernel/perf_event_paranoid": "4\n",
    "/proc/sys/kernel/randomize_va_space": "2\n",
    "/etc/os-release": 'ID=debian\nNAME="Debian GNU/Linux"\n',
    "/etc/default/grub": 'GRUB_CMDLINE_LINUX="quiet"\n',
    "/sys/class/dmi/id/sys_vendor": "LENOVO\n",
    "/sys/class/dmi/id/product_name": "21ABCDEF\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "/sys/bus/event_source/devices/cpu/type": "4\n",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm\n",
    "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    f"{CPUS}/cpufreq/policy0/scaling_governor": "powersave\n",
    f"{CPUS}/cpufreq/policy1/scaling_governor": "powersave\n",
    f"{CPUS}/cpufreq/policy0/scaling_cur_freq": "1400000\n",
    f"{CPUS}/cpufreq/policy1/scaling_cur_freq": "2900000\n",
    f"{CPUS}/cpufreq/policy0/scaling_max_freq": "4700000\n",
    f"{CPUS}/cpufreq/policy1/scaling_max_freq": "4700000\n",
    f"{CPUS}/intel_pstate/no_turbo": "0\n",
    f"{CPUS}/smt/active": "1\n",
    f"{CPUS}/cpu0/topology/thread_siblings_list": "0-1\n",
    f"{CPUS}/cpu1/topology/thread_siblings_list": "0-1\n",
    f"{CPUS}/cpu0/thermal_throttle/core_throttle_count": "3\n",
    f"{CPUS}/cpu1/thermal_throttle/package_throttle_count": "4\n",
}


def built(folder: Path, files: Mapping[str, str | None]) -> Sysfs:
    """Make a tree of these files; those that are None are left out."""
    for path, text in files.items():
        if text is not None:
            place = folder / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
    return Sysfs(str(folder))
