"""Find disturbances by the machine: other load, steal time, throttling, clocks, memory.

Each threshold has its reason beside it. An unknown figure gives no finding; `cannot_tell` names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfrun.probes.counters import change
from perfrun.summary.finding import Finding, MachineDelta, Severity, Thresholds, beyond

MEMORY_SHARE_LIMIT = 0.1  # of all memory; below it the kernel begins to drop caches
DISK_LIMIT_BYTES = 1 << 30  # a framework's checkout, and room for logs and results
SWAP_LIMIT_BYTES = 64 << 20  # pages of long idle programs
LOAD_PER_CPU_LIMIT = 0.1
LOAD_LIMIT = 1.0  # tasks, however many CPUs there are: they share caches, memory and power
# Of `load_limit`, the limit for other work: below it the effect is not noticeable.
OTHERS_WARNING_SHARE = 0.25
# Of the CPU time wanted: 0.5 % is below the noise of most benchmarks, 2 % is not.
STEAL = Thresholds(warning=0.005, disturbed=0.02)
STEAL_SLACK_S = 0.02  # two steps of the counter: one is 4 % of a trial of 0.12 s on two CPUs
THROTTLED = Thresholds(disturbed=0.01)  # of the quota's periods, usually 0.1 s long
JUMP = Thresholds(disturbed=0.01)  # s; a slow correction moves both clocks and is no jump
SWAPPED = Thresholds(disturbed=1 << 20)  # bytes; less is a few pages of a program that woke up
# Of a core: four times the cost that watching may have (docs/research/performance.md).
HARNESS = Thresholds(warning=0.02)
HARNESS_SLACK_S = 0.1  # the cost of starting and ending any trial
# Share of the trial in which some task of the machine waited (PSI "some"). A benchmark with more
# threads than CPUs causes pressure itself, so pressure is no disturbance.
CPU_PRESSURE = Thresholds(warning=0.1)
MEMORY_PRESSURE = Thresholds(warning=0.01)  # a healthy machine seldom waits for memory
IO_PRESSURE = Thresholds(warning=0.1)
FREQUENCY_SHARE = 0.1  # a tenth faster or slower at the end than at the start
LOAD_OWN_CPU_S = 1.0  # after more CPU time than this of perfrun's trials, the load is theirs, too
_LOAD_WINDOW_S = 60.0
_MIB = 1 << 20


def load_limit(cpus: int) -> float:
    """Return the tolerable number of busy tasks beside the benchmark on so many CPUs."""
    return min(LOAD_LIMIT, LOAD_PER_CPU_LIMIT * cpus)


def machine_findings(delta: MachineDelta) -> Iterator[Finding]:
    """Yield the findings about the machine."""
    if delta.added.elapsed_s <= 0:
        return
    yield from _other_work(delta)
    yield from _held_back(delta)
    yield from _clocks(delta)
    yield from _frequencies(delta)
    yield from _memory(delta)
    yield from _pressures(delta)
    yield from _unknown(delta)


def _other_work(delta: MachineDelta) -> Iterator[Finding]:
    cpus, elapsed = delta.after.cpus, delta.added.elapsed_s
    limit, cores = load_limit(cpus), delta.others_cores
    yield from beyond(
        "machine_loaded",
        cores,
        Thresholds(warning=limit * OTHERS_WARNING_SHARE, disturbed=limit),
        text=f"others used {cores or 0:.2f} of {cpus} CPUs during the trial",
        unit="CPUs",
        mend="end or move other work: ps -eo pcpu,pid,user,args --sort=-pcpu | head",
    )
    load = delta.before.snapshot.load_1min
    own = delta.before.own_cpu_s + delta.before.children_cpu_s
    # CPU time c cannot have added more than c / 60 to the mean over a minute.
    yield from beyond(
        "load_at_start",
        None if load is None or own > LOAD_OWN_CPU_S else load - own / _LOAD_WINDOW_S,
        Thresholds(warning=limit),
        text=f"the load was {load or 0:.1f} when the run began",
        unit="tasks",
        mend="wait until the machine is idle",
    )
    share = max(0.0, delta.harness_cpu_s - HARNESS_SLACK_S) / elapsed
    yield from beyond(
        "harness_busy",
        share,
        HARNESS,
        text=f"perfrun itself used {share:.1%} of a CPU beside the trial",
        unit="CPUs",
    )
    busy, cores_there = delta.added.busy_s, delta.after.cores
    if delta.after.smt and busy is not None and cores_there:
        yield from beyond(
            "cores_shared",
            busy / elapsed,
            Thresholds(warning=float(cores_there)),
            text=f"{busy / elapsed:.1f} CPUs were busy on {cores_there} cores: threads shared them",
            unit="CPUs",
            mend="fewer threads, or SMT off",
        )


def _held_back(delta: MachineDelta) -> Iterator[Finding]:
    added = delta.added
    wanted = (added.busy_s or 0.0) + (added.steal_s or 0.0)
    stolen = None
    if added.steal_s is not None and wanted > 0:
        stolen = max(0.0, added.steal_s - STEAL_SLACK_S) / wanted
    yield from beyond(
        "cpu_stolen",
        stolen,
        STEAL,
        text=f"the hypervisor took {stolen or 0:.1%} of the CPU time that was wanted",
        unit="share",
        mend="a dedicated host, or a quieter time",
    )
    share = delta.throttled_share
    yield from beyond(
        "throttled",
        share,
        THROTTLED,
        text=f"the CPU quota was used up in {share or 0:.0%} of its periods",
        unit="share",
        mend="a larger quota for the container or control group, or fewer threads",
    )
    yield from beyond(
        "thermal_throttled",
        added.thermal_throttles,
        Thresholds(disturbed=0),
        text=f"heat slowed the processor down {added.thermal_throttles} times",
        unit="times",
        mend="better cooling, turbo off, or pauses",
    )


def _clocks(delta: MachineDelta) -> Iterator[Finding]:
    jump = change(delta.before.wall_offset_s, delta.after.wall_offset_s)
    slept = change(delta.before.suspended_s, delta.after.suspended_s)
    # The time of day goes on while the machine sleeps; that is no jump.
    if jump is not None and slept is not None:
        jump -= slept
    yield from beyond(
        "clock_jumped",
        None if jump is None else abs(jump),
        JUMP,
        text=f"the time of day was set by {jump or 0:+.3f} s during the trial",
        unit="s",
        mend="let the clock be slewed (chrony, systemd-timesyncd), not stepped",
    )
    yield from beyond(
        "suspended",
        slept,
        JUMP,
        text=f"the machine slept for {slept or 0:.1f} s during the trial",
        unit="s",
        mend="systemd-inhibit --what=sleep perfrun ...",
    )


def _frequencies(delta: MachineDelta) -> Iterator[Finding]:
    before, after = delta.before, delta.after
    slow = sorted({*before.governors, *after.governors} - {"performance"})
    if slow:
        yield Finding(
            code="governor",
            severity=Severity.WARNING,
            text=f"the frequency governor is {', '.join(slow)}, not performance",
            mend="see `perfrun doctor`",
        )
    tops = (max(before.top_frequencies_khz, default=0), max(after.top_frequencies_khz, default=0))
    if 0 < tops[1] < tops[0]:
        yield Finding(
            code="frequency_capped",
            severity=Severity.DISTURBED,
            text=f"the highest frequency was lowered to {tops[1] / 1e6:.2f} GHz during the trial",
            value=tops[1] / 1e6,
            limit=tops[0] / 1e6,
            unit="GHz",
            mend="look for heat, power limits and power-saving daemons",
        )
    if before.frequency_khz and after.frequency_khz:
        ratio = after.frequency_khz / before.frequency_khz
        if abs(ratio - 1.0) > FREQUENCY_SHARE:
            yield Finding(
                code="frequency_moved",
                severity=Severity.INFO,
                text=f"the processor ran at {before.frequency_khz / 1e6:.2f} GHz at the start and "
                f"at {after.frequency_khz / 1e6:.2f} GHz at the end",
                value=ratio,
                limit=1.0 + FREQUENCY_SHARE,
                unit="ratio",
            )


def _memory(delta: MachineDelta) -> Iterator[Finding]:
    added, after = delta.added, delta.after
    flows = (added.swapped_in_bytes, added.swapped_out_bytes)
    swapped = None if None in flows else sum(flow or 0 for flow in flows)
    yield from beyond(
        "swapping",
        swapped,
        SWAPPED,
        text=f"{(swapped or 0) / _MIB:,.0f} MiB went to swap or came from it during the trial",
        unit="bytes",
        mend="more memory, less other work, or `sudo swapoff -a`",
    )
    used = after.snapshot.swap_used_bytes
    if used is not None and used > SWAP_LIMIT_BYTES:
        yield Finding(
            code="swap_used",
            severity=Severity.INFO,
            text=f"{used / _MIB:,.0f} MiB are in swap",
            value=used,
            limit=SWAP_LIMIT_BYTES,
            unit="bytes",
        )
    states = (delta.before.snapshot, delta.after.snapshot)
    free = [s.available_bytes for s in states if s.available_bytes is not None]
    if free and after.memory_bytes and min(free) < MEMORY_SHARE_LIMIT * after.memory_bytes:
        yield Finding(
            code="memory_short",
            severity=Severity.WARNING,
            text=f"only {min(free) / _MIB:,.0f} MiB of memory were free",
            value=min(free),
            limit=MEMORY_SHARE_LIMIT * after.memory_bytes,
            unit="bytes",
            mend="end other programs: ps -eo rss,pid,user,args --sort=-rss | head",
        )
    disk = after.free_disk_bytes
    if disk is not None and disk < DISK_LIMIT_BYTES:
        yield Finding(
            code="disk_nearly_full",
            severity=Severity.WARNING,
            text=f"only {disk / _MIB:,.0f} MiB are free on the workspace's disk",
            value=disk,
            limit=DISK_LIMIT_BYTES,
            unit="bytes",
            mend="--workspace=FOLDER on a disk with room",
        )


def _pressures(delta: MachineDelta) -> Iterable[Finding]:
    added = delta.added
    for name, seconds, thresholds, what in (
        ("cpu_pressure", added.cpu_pressure_s, CPU_PRESSURE, "a CPU"),
        ("memory_pressure", added.memory_pressure_s, MEMORY_PRESSURE, "memory"),
        ("io_pressure", added.io_pressure_s, IO_PRESSURE, "a disk"),
    ):
        share = None if seconds is None else seconds / added.elapsed_s
        yield from beyond(
            name,
            share,
            thresholds,
            text=f"some task waited for {what} during {share or 0:.0%} of the trial",
            unit="share",
        )


def _unknown(delta: MachineDelta) -> Iterator[Finding]:
    added = delta.added
    figures = {
        "CPU use of others": delta.others_cores,
        "steal time": added.steal_s,
        "swapping": added.swapped_in_bytes,
        "pressure": added.cpu_pressure_s,
    }
    absent = [name for name, value in figures.items() if value is None]
    if absent:
        yield Finding(
            code="cannot_tell",
            severity=Severity.INFO,
            text=f"this machine does not report: {', '.join(absent)}",
        )
