"""The words of workers, checked: a trial's outcome and series, and the answers of services.

A worker runs the benchmark's code in its own process, so whatever it says may be the benchmark's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfrun.launchers.supervisor_words import COUNTS
from perfrun.schema import (
    LONGEST_S,
    Notes,
    Wrong,
    anything,
    checked,
    flag,
    listed,
    mapped,
    matching,
    maybe,
    number,
    one_of,
    seconds,
    short,
    shown,
    size,
    table,
    text,
    whole,
)
from perfrun.summary.series_identity import MOST_VERSION
from perfrun.untrusted import Refused, parse_json

_LATEST_S = 9e10  # from 1e11 on, a time stamp is taken for one in milliseconds
_PHASES = ("start", "import", "construct", "method")
_MOST_DISTRIBUTIONS = 20_000
_MOST_METHODS = 100_000
_NAME = text(200)
_path = matching(r"[^\0]+", "a path", 4096)
_version = matching(rf"[^\x00-\x1f\x7f]{{1,{MOST_VERSION}}}", "a version, short and of one line")
_LONGEST_NS = 10**18  # of a series: thirty years
_MOST_STEPS = 2**53

_MARKS = table({"peak_rss_bytes": maybe(size), "peak_vms_bytes": maybe(size)})
_PHASE = table({"wall_s": seconds, "cpu_s": seconds}, needs=("wall_s", "cpu_s"))
_FRAMEWORK = table(
    {"name": _NAME, "version": maybe(_NAME), "build_version": maybe(_NAME)},
    needs=("name",),
    absent={"version": None, "build_version": None},
)
_ERROR = table(
    {
        "kind": one_of("exception", "exit"),
        "type": text(200),
        "message": text(128 * 1024),
        "traceback": text(128 * 1024),
        "exit_code": whole(-(2**63), 2**64),
    },
    needs=("kind",),
    absent={"type": "an exception", "message": ""},
)
_DEVICE_PEAK = table(
    {
        "device": _NAME,
        "framework": _NAME,
        "peak_allocated_bytes": maybe(size),
        "peak_reserved_bytes": maybe(size),
        "reason": text(),
    },
    needs=("framework",),
    absent={"device": "a device"},
)
_WINDOW = table(
    {
        "part": _NAME,
        "series": maybe(text()),
        "steps": maybe(whole()),
        "begin_s": number(-LONGEST_S, LONGEST_S),
        "end_s": number(-LONGEST_S, LONGEST_S),
    },
    needs=("part", "begin_s", "end_s"),
    absent={"series": None, "steps": None},
)
_ROW = table(
    {
        "name": text(2000),
        "where": maybe(text(4096)),
        "unit": maybe(_NAME),
        **{
            name: number()
            for name in (
                *("calls", "self_s", "total_s", "device_s"),
                *("bytes", "allocations", "count", "per_step"),
            )
        },
    },
    needs=("name",),
)


def _inner_path(value: Any, place: str, notes: Notes) -> str:
    """Want a path within the trial's folder, relative to it."""
    path: str = _path(value, place, notes)
    if path.startswith("/") or ".." in path.split("/"):
        raise Wrong(f"is {shown(path)}, not a path in the trial's folder")
    return path


_FILE = table({"path": _inner_path, "bytes": size}, needs=("path", "bytes"))
_PROFILE = table(
    {
        "kind": maybe(_NAME),
        "tool": maybe(_NAME),
        "version": maybe(_NAME),
        "scope": maybe(text()),
        "windows": listed(_WINDOW, 100),
        "top": listed(_ROW, 100),
        "files": listed(_FILE, 1000),
        "notes": listed(text(), 100),
        "error": maybe(text(4096)),
    },
    absent={
        **dict.fromkeys(("kind", "tool", "version", "scope", "error")),
        **dict.fromkeys(("windows", "top", "files", "notes"), ()),
    },
)
_OUTCOME = table(
    {
        "complete": flag,
        "phase": one_of(*_PHASES),
        "pid": whole(1, 2**31),
        "error": maybe(_ERROR),
        "phases": table(dict.fromkeys(_PHASES, _PHASE)),
        "timestamp": number(0.0, _LATEST_S),
        "memory": table({"before_method": _MARKS, "end": _MARKS, "reset": flag}),
        "resources": table({"before": COUNTS, "after": COUNTS}),
        "allocators": listed(_DEVICE_PEAK, 200),
        "allocator": maybe(
            table(
                {
                    **dict.fromkeys(("name", "library", "libc"), maybe(text(500))),
                    "settings": mapped(text(500), 20),
                }
            )
        ),
        "module_file": maybe(_path),
        "benchmark_version": maybe(_version),
        "framework": maybe(_FRAMEWORK),
        "frameworks": listed(_FRAMEWORK, 20),
        "unsaved_reports": listed(mapped(anything(), 20), 1000),
        "profiles": listed(_PROFILE, 20),
        "notes": listed(text(), 100),
    },
)

_FIGURES = (
    *("median_s", "median_low_s", "median_high_s", "precision", "mean_s", "std_s"),
    *("rate_std_per_s", "p50_s", "p90_s", "p99_s", "min_s", "max_s"),
)
_STATISTICS = table(
    {
        "of": text(),
        "count": whole(1),
        **dict.fromkeys(_FIGURES, maybe(number(0.0))),
        **dict.fromkeys(("median_s", "mean_s", "min_s", "max_s"), number(0.0)),
        "correlation": maybe(number(0.0)),
        "absent": mapped(text(), 20),
    },
    needs=("count", "median_s", "mean_s", "min_s", "max_s"),
    absent={**dict.fromkeys((*_FIGURES, "correlation")), "absent": {}},
)
_METRIC = table(
    {"value": number(), "unit": _NAME, "direction": one_of("lower", "higher", "none")},
    needs=("value",),
    absent={"unit": "", "direction": "none"},
)
_SERIES_FIELDS = {
    "name": text(),
    "report": maybe(text(2000)),
    "items_per_step": number(1e-100, 1e100),
    "item": _NAME,
    "unit": _NAME,
    "direction": _NAME,
    "clock": table({"name": _NAME, "implementation": _NAME, "resolution_s": seconds}),
    "complete": flag,
    "stopped_by": maybe(_NAME),
    "target": mapped(maybe(number(0.0, float("inf"))), 20),
    "notes": listed(text(), 100),
    "block_size": maybe(whole(1, _MOST_STEPS)),
    "device": maybe(_NAME),
    "devices": maybe(whole(1, 10**6)),
    "synchronised_by": maybe(listed(_NAME, 100)),
    "cudnn_autotune": maybe(flag),
    "timer": maybe(table({"overhead_s": seconds, "share": maybe(number(0.0))})),
    "gc": maybe(
        table(
            {
                "mode": _NAME,
                "enabled": flag,
                "collections": maybe(listed(whole(-(2**62)), 10)),
                "time_s": maybe(number()),
                "time_source": maybe(_NAME),
                "share": maybe(number()),
            }
        )
    ),
    "recompilations": maybe(mapped(number(0.0, 1e15), 100)),
    "first_call_s": maybe(seconds),
    "warmup": table(
        {
            "iterations": whole(),
            "steps": whole(),
            "time_s": seconds,
            "times_s": listed(seconds, 2000),
            "every": whole(1),
        }
    ),
    "iterations": whole(),
    "steps": whole(),
    "timed_s": seconds,
    "times_every": whole(1),
    "statistics": maybe(_STATISTICS),
    "steadiness": maybe(
        table(
            {"kind": _NAME, "steady_from": maybe(whole()), "steady": maybe(flag)},
            needs=("kind",),
            absent={"steady_from": None, "steady": None},
        )
    ),
    **dict.fromkeys(
        ("cpu_s", "device_time_s", "system_cpu_s"),
        maybe(seconds),
    ),
    **dict.fromkeys(
        (
            *("minor_faults_per_step", "major_faults_per_step"),
            *("throughput_per_s", "throughput_per_device_per_s"),
        ),
        maybe(number(0.0)),
    ),
    "metrics": mapped(_METRIC, 100),
}
# A series that was cut short has the first of these; `statistics` makes it a whole one.
_SERIES = table(_SERIES_FIELDS, needs=("name", "items_per_step", "item"))
_WHOLE_SERIES = table(
    _SERIES_FIELDS,
    needs=("name", "items_per_step", "item", "statistics"),
    absent={**dict.fromkeys(_SERIES_FIELDS), "metrics": {}, "notes": (), "complete": False},
)

_METHOD = table(
    {"class": text(), "method": text(), "doc": text()},
    needs=("class", "method"),
    absent={"doc": ""},
)
_DISCOVERED = table(
    {
        "target": anything(20, 4096),
        "methods": listed(_METHOD, _MOST_METHODS),
        "error": text(4096),
        "is_missing": flag,
        "inside": listed(text(), _MOST_METHODS),
    }
)
_DESCRIPTION = table(
    {
        "python": table(
            {
                "version": matching(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}", "a version as 3.11.2"),
                **dict.fromkeys(("build", "implementation", "executable", "prefix"), text(4096)),
            },
            needs=("version",),
        ),
        "distributions": mapped(_NAME, _MOST_DISTRIBUTIONS),
        "direct_url_commits": mapped(_NAME, _MOST_DISTRIBUTIONS),
        "image_info": mapped(anything(), 100),
    },
    needs=("python",),
    absent={"distributions": {}, "direct_url_commits": {}, "image_info": {}},
)
_FLAGS = table(
    {"error": maybe(text(4096)), "skipped": text(), "is_missing": flag},
    needs=("error",),
    absent={"is_missing": False},
)
_UPLOADED = table({"method": text(), "error": maybe(text(4096))}, needs=("method", "error"))


def outcome_of(said: Any, name: str, notes: list[str]) -> dict[str, Any]:
    """Return what is right of a worker's outcome. Raises Wrong when it cannot be used."""
    try:
        record: dict[str, Any] = checked(_OUTCOME, said, name, notes)
    except Wrong as error:
        raise Wrong(f"it {error}") from None
    # What is wrong may not make of a method that failed one that passed.
    if said.get("error") is not None and record.get("error") is None:
        raise Wrong("its error cannot be read")
    for profile in record.get("profiles", ()):
        profile["top"] = _alike(profile["top"], name, notes)
    return record


def _alike(rows: Sequence[Mapping[str, Any]], name: str, notes: list[str]) -> list[Any]:
    """Return the rows with the columns of the first one: they are shown as one table."""
    alike = [row for row in rows if row.keys() >= rows[0].keys()]
    if len(alike) < len(rows):
        notes.append(f"{name}: {len(rows) - len(alike)} rows of a profile lack what the first has")
    return alike


def series_of(said: Any, name: str, notes: list[str]) -> dict[str, Any]:
    """Return what is right of a series' description. Raises Wrong when it cannot be used."""
    is_whole = isinstance(said, dict) and "statistics" in said
    try:
        facts: dict[str, Any] = checked(_WHOLE_SERIES if is_whole else _SERIES, said, name, notes)
    except Wrong as error:
        raise Wrong(f"it {error}") from None
    return facts


def check_rows(columns: Sequence[Sequence[int]]) -> None:
    """Check the raw rows of a series, given by column. Raises Wrong.

    Steps are negative before the timed part and positive in it; none is 0. The bounds let all that
    is computed from the rows be finite.
    """
    wall_ns, cpu_ns, device_ns, steps = columns
    begin = next((at for at, count in enumerate(steps) if count > 0), len(steps))
    before, timed = steps[:begin], steps[begin:]
    if max(before, default=-1) >= 0 or min(timed, default=1) <= 0:
        raise Wrong("its rows have intervals without a step")
    if sum(timed) - sum(before) > _MOST_STEPS:
        raise Wrong("its rows have more steps than can be")
    for column, least in ((wall_ns, 0), (cpu_ns, 0), (device_ns, -1)):
        if min(column, default=0) < least or sum(column) > _LONGEST_NS:
            raise Wrong("its rows have times that cannot be")


def discovered(line: str, target: Mapping[str, Any]) -> dict[str, Any]:
    """Return a worker's answer about a target: its methods, or an error."""
    notes: list[str] = []
    try:
        answer: dict[str, Any] = checked(_DISCOVERED, parse_json(line), "it", notes)
    except (Refused, Wrong) as error:
        return {"target": target, "error": short(f"the worker's answer cannot be used: {error}")}
    answer["target"] = target
    if not answer.get("error") and "methods" not in answer:
        why = notes[0] if notes else "it has no methods"
        answer["error"] = short(f"the worker's answer cannot be used: {why}")
    return answer


def description(answer: str) -> dict[str, Any]:
    """Return the description of an environment. Raises Wrong or Refused."""
    found: dict[str, Any] = _DESCRIPTION(parse_json(answer), "", Notes("the description"))
    return found


def text_values(said: Any) -> dict[str, str]:
    """Return the texts of an object; {} for anything else."""
    try:
        found: dict[str, str] = mapped(_NAME, 100)(said, "", Notes("it"))
    except Wrong:
        return {}
    return found


def flags_error(answer: str) -> tuple[str | None, bool]:
    """Return what a worker finds wrong with flags, and whether it lacks what parses them.

    Raises Wrong or Refused.
    """
    said = _FLAGS(parse_json(answer), "", Notes("the flags"))
    return said["error"], said["is_missing"]


def uploads(answer: str, functions: Sequence[str]) -> list[dict[str, Any]]:
    """Return the result of each upload function. Raises Wrong or Refused."""
    notes = Notes("the uploads")
    said = listed(_UPLOADED, len(functions))(parse_json(answer), "", notes)
    known = {one["method"]: one["error"] for one in said}
    unknown = "its worker did not say how it went"
    return [{"method": name, "error": known.get(name, unknown)} for name in functions]
