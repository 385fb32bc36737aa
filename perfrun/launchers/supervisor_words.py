"""The words of a container's supervisor, checked: its messages, and its report on the worker's end.

It runs where the benchmark runs, which can write into its streams and its file as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfrun.schema import (
    LONGEST_S,
    Wrong,
    checked,
    flag,
    listed,
    maybe,
    number,
    seconds,
    size,
    table,
    text,
    whole,
)

_LARGEST_PID = 2**31
# The kernel's counts of processes, as the worker and its supervisor name them.
COUNTS = table(
    {
        "user_s": seconds,
        "system_s": seconds,
        **{
            name: whole()
            for name in (
                "voluntary_switches",
                "involuntary_switches",
                "minor_faults",
                "major_faults",
                "read_bytes",
                "written_bytes",
                "cancelled_bytes",
                "read_call_bytes",
                "written_call_bytes",
            )
        },
    }
)
_SPLIT = {name: maybe(size) for name in ("anon_bytes", "file_bytes", "shmem_bytes")}
_CGROUP = table(
    {
        "version": whole(1, 2),
        "path": maybe(text()),
        **{name: maybe(size) for name in ("memory_peak_bytes", "memory_now_bytes")},
        **_SPLIT,
        "memory_limit_bytes": maybe(whole()),
        "peak_split": maybe(table(_SPLIT)),
        "peak_split_bytes": maybe(size),
        **{name: maybe(whole()) for name in ("oom_kills", "throttled_periods", "cpu_periods")},
        **{
            name: maybe(number(0.0, LONGEST_S))
            for name in (
                "cpu_usage_s",
                "throttled_s",
                *(
                    f"{resource}_pressure_{kind}s"
                    for resource in ("cpu", "memory", "io")
                    for kind in ("", "full_")
                ),
            )
        },
    }
)
_REPORT = table(
    {
        "exit_code": maybe(whole(0, 255)),
        "signal_number": maybe(whole(1, 64)),
        "elapsed_s": seconds,
        "user_cpu_s": seconds,
        "system_cpu_s": seconds,
        "max_rss_bytes": size,
        "resources": COUNTS,
        "strays": listed(text(200), 50),
        "told_from_outside": maybe(text(100)),
        "harness_is_gone": flag,
        "cgroup": maybe(_CGROUP),
    },
    needs=("exit_code", "signal_number"),
)
_MESSAGE = table(
    {
        "worker": whole(1, _LARGEST_PID),
        "ended": whole(1, _LARGEST_PID),
        "exit": _REPORT,
    }
)


def report_of(said: Any, notes: list[str]) -> dict[str, Any] | None:
    """Return the report that a supervisor has written; None, and a note, for what is none."""
    try:
        report: dict[str, Any] = checked(_REPORT, said, "exit.json", notes)
    except Wrong as error:
        notes.append(f"exit.json cannot be used: it {error}")
        return None
    if (report["exit_code"] is None) == (report["signal_number"] is None):
        notes.append("exit.json cannot be used: a process ends by a status or by a signal")
        return None
    return report


def message_of(said: Any, notes: list[str]) -> Mapping[str, Any]:
    """Return what is right of a supervisor's message; nothing of what is none."""
    try:
        message: dict[str, Any] = checked(_MESSAGE, said, "the supervisor", notes)
    except Wrong:
        return {}
    report = message.get("exit")
    if report and (report["exit_code"] is None) == (report["signal_number"] is None):
        del message["exit"]
    return message
