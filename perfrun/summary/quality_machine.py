"""What the machine did to a trial: other work, theft, throttling, clocks, memory. Pure.

Every limit has its reason beside it. What was not measured gives no finding; `unknown` names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfrun.summary.finding import Finding, MachineDelta, Severity, Thresholds, beyond

MEMORY_SHARE_LIMIT = 0.1  # of all memory; below it the kernel begins to reclaim what is cached
DISK_LIMIT_BYTES = 1 << 30  # a framework's checkout, and room for logs and results
SWAP_LIMIT_BYTES = 64 << 20  # pages of long idle programs, which nobody misses
LOAD_PER_CPU_LIMIT = 0.1
LOAD_LIMIT = 1.0  # tasks, however many CPUs there are: they share caches, memory and power
# Of the machine's limit for other work (`load_limit`): below it nobody notices.
OTHERS_WARNING_SHARE = 0.25
# Of the CPU time wanted: half a per cent hides in the noise of most benchmarks, two do not.
STEAL = Thresholds(warning=0.005, disturbed=0.02)
STEAL_SLACK_S = 0.02  # two steps of its counter: one is 4 % of a trial of 0.12 s on two CPUs
THROTTLED = Thresholds(disturbed=0.01)  # of the quota's periods, which are 0.1 s as a rule
JUMP = Thresholds(disturbed=0.01)  # s; steps of clocks, not their slow correction, which both share
SWAPPED = Thresholds(disturbed=1 << 20)  # bytes; less is a page or two of somebody who woke up
HARNESS = Thresholds(
    warning=0.02
)  # of a core; four times what watching may take (docs/performance.md)
HARNESS_SLACK_S = 0.1  # starting and ending a trial costs this however short it is
# Share of the trial in which some task of the machine waited (PSI "some"). A benchmark with more
# threads than CPUs makes pressure of its own, so these are no disturbance by themselves.
CPU_PRESSURE = Thresholds(warning=0.1)
MEMORY_PRESSURE = Thresholds(warning=0.01)  # a healthy machine hardly ever waits for memory
IO_PRESSURE = Thresholds(warning=0.1)
FREQUENCY_SHARE = 0.1  # a tenth faster or slower at the end than at the start
LOAD_OWN_CPU_S = 1.0  # once perfrun's own trials ran longer than this, the load is theirs, too
_LOAD_WINDOW_S = 60.0
_MIB = 1 << 20


def load_limit(cpus: int) -> float:
    """How many busy tasks beside the benchmark are tolerable on so many CPUs."""
    return min(LOAD_LIMIT, LOAD_PER_CPU_LIMIT * cpus)


def machine_findings(span: MachineDelta) -> Iterator[Finding]:
    """Yield all that is to be said about the machine, from counters and states."""
    if span.added.elapsed_s <= 0:
        return
    yield from _other_work(span)
    yield from _held_back(span)
    yield from _clocks(span)
    yield from _frequencies(span)
    yield from _memory(span)
    yield from _pressures(span)
    yield from _unknown(span)


def _other_work(span: MachineDelta) -> Iterator[Finding]:
    cpus, elapsed = span.after.cpus, span.added.elapsed_s
    limit, cores = load_limit(cpus), span.others_cores
    yield from beyond(
        "machine_loaded",
        cores,
        Thresholds(warning=limit * OTHERS_WARNING_SHARE, disturbed=limit),
        text=f"others used {cores or 0:.2f} of {cpus} CPUs during the trial",
        unit="CPUs",
        mend="end or move other work: ps -eo pcpu,pid,user,args --sort=-pcpu | head",
    )
    load = span.before.snapshot.load_1min
    own = span.before.own_cpu_s + span.before.children_cpu_s
    # CPU time c cannot have added more than c / 60 to the mean over a minute.
    yield from beyond(
        "load_at_start",
        None if load is None or own > LOAD_OWN_CPU_S else load - own / _LOAD_WINDOW_S,
        Thresholds(warning=limit),
        text=f"the load was {load or 0:.1f} when the run began",
        unit="tasks",
        mend="wait until the machine is idle",
    )
    share = max(0.0, span.harness_cpu_s - HARNESS_SLACK_S) / elapsed
    yield from beyond(
        "harness_busy",
        share,
        HARNESS,
        text=f"perfrun itself used {share:.1%} of a CPU beside the trial",
        unit="CPUs",
    )
    busy, cores_there = span.added.busy_s, span.after.cores
    if span.after.smt and busy is not None and cores_there:
        yield from beyond(
            "cores_shared",
            busy / elapsed,
            Thresholds(warning=float(cores_there)),
            text=f"{busy / elapsed:.1f} CPUs were busy on {cores_there} cores: threads shared them",
            unit="CPUs",
            mend="fewer threads, or SMT off",
        )


def _held_back(span: MachineDelta) -> Iterator[Finding]:
    added = span.added
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
    share = span.throttled_share
    yield from beyond(
        "throttled",
        share,
        THROTTLED,
        text=f"the CPU quota ran out in {share or 0:.0%} of its periods",
        unit="share",
        mend="a larger quota for the container or control group, or fewer threads",
    )
    yield from beyond(
        "thermal_throttled",
        added.thermal_throttles,
        Thresholds(disturbed=0),
        text=f"the processor slowed down for its heat {added.thermal_throttles} times",
        unit="times",
        mend="better cooling, turbo off, or pauses",
    )


def _clocks(span: MachineDelta) -> Iterator[Finding]:
    jump = _moved(span.before.wall_offset_s, span.after.wall_offset_s)
    slept = _moved(span.before.suspended_s, span.after.suspended_s)
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


def _moved(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _frequencies(span: MachineDelta) -> Iterator[Finding]:
    before, after = span.before, span.after
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


def _memory(span: MachineDelta) -> Iterator[Finding]:
    added, after = span.added, span.after
    flows = (added.swapped_in_bytes, added.swapped_out_bytes)
    swapped = None if None in flows else sum(flow or 0 for flow in flows)
    yield from beyond(
        "swapping",
        swapped,
        SWAPPED,
        text=f"{(swapped or 0) / _MIB:,.0f} MiB went to swap or came from it during the trial",
        unit="bytes",
        mend="more memory, fewer neighbours, or `sudo swapoff -a`",
    )
    used = after.snapshot.swap_used_bytes
    if used is not None and used > SWAP_LIMIT_BYTES:
        yield Finding(
            code="swap_used",
            severity=Severity.INFO,
            text=f"{used / _MIB:,.0f} MiB lie in swap",
            value=used,
            limit=SWAP_LIMIT_BYTES,
            unit="bytes",
        )
    states = (span.before.snapshot, span.after.snapshot)
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


def _pressures(span: MachineDelta) -> Iterable[Finding]:
    added = span.added
    for name, seconds, limits, what in (
        ("cpu_pressure", added.cpu_pressure_s, CPU_PRESSURE, "a CPU"),
        ("memory_pressure", added.memory_pressure_s, MEMORY_PRESSURE, "memory"),
        ("io_pressure", added.io_pressure_s, IO_PRESSURE, "a disk"),
    ):
        share = None if seconds is None else seconds / added.elapsed_s
        yield from beyond(
            name,
            share,
            limits,
            text=f"some task waited for {what} during {share or 0:.0%} of the trial",
            unit="share",
        )


def _unknown(span: MachineDelta) -> Iterator[Finding]:
    added = span.added
    figures = {
        "CPU use of others": span.others_cores,
        "steal": added.steal_s,
        "swapping": added.swapped_in_bytes,
        "pressure": added.cpu_pressure_s,
    }
    absent = [name for name, value in figures.items() if value is None]
    if absent:
        yield Finding(
            code="cannot_tell",
            severity=Severity.INFO,
            text=f"not to be known here: {', '.join(absent)}",
        )
