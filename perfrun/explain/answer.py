"""The answer of an explanation: what the trials say, and what the profiles name as its cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perfrun.analysis.attribution import (
    FALSE_NAMES,
    RELEVANT_SHARE,
    Attributed,
    Attribution,
    Change,
    attribute,
    change_of,
    rows_to_test,
)
from perfrun.analysis.stats import numbers_of
from perfrun.compare.command import difference_row
from perfrun.compare.differences import Difference, differences
from perfrun.compare.paired_runs import ARMS, Pair
from perfrun.explain.code_changes import CodeChange, SourceFile, code_changes
from perfrun.explain.profile_rows import Keyed, Reading, RowKey, keyed
from perfrun.explain.turns import Turns
from perfrun.summary.metrics import PEAK_RSS

Kind = Literal["more often", "less often", "slower", "faster", "new", "gone", "larger", "smaller"]
FALSE_ALARMS = 0.05  # of the trials' own difference
MOST_ROWS = 20  # of a kind in the document, besides all that are named
_SAME = 0.02  # a number of calls within it is the same


@dataclass(frozen=True, kw_only=True)
class ExplainedRow:
    """A row with what became of it."""

    name: str
    where: str
    change: Change
    named: bool
    share: float | None  # of the profiles' difference or, where the trials have none, of their base
    calls: tuple[float | None, float | None]  # of one step
    kind: Kind
    native: tuple[str, ...]  # the C functions that changed most, in words


@dataclass(frozen=True, kw_only=True)
class ExplainedKind:
    """The profiles of one kind."""

    kind: str
    tool: str
    unit: str
    figure: str  # key of the profiler's rows
    is_per_step: bool
    turns: int  # with this profile of both sides
    rows: tuple[ExplainedRow, ...]  # the named first, the largest difference first
    tested: int
    total: Change
    common: Change | None
    common_is_named: bool
    explained: float | None  # share of the trials' difference that the named rows make up
    notes: tuple[str, ...]
    folders: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All that an explanation says."""

    turns: Turns
    metric: str
    names: Mapping[str, str]
    time: Change  # of the trials without a profiler
    memory: Change | None
    kinds: tuple[ExplainedKind, ...]
    differences: tuple[Difference, ...]
    code: tuple[CodeChange, ...]

    @property
    def first(self) -> tuple[ExplainedKind, ExplainedRow] | None:
        """The named row with the largest share, of the first kind that names one."""
        for kind in self.kinds:
            for row in kind.rows:
                if row.named:
                    return kind, row
        return None


def answer_of(turns: Turns, metric: str, names: Mapping[str, str]) -> Answer:
    """Judge the turns."""
    time = _change_of(turns.pairs, metric)
    assert time is not None
    rows = {
        kind: keyed([sides[arm] for arm in ARMS], [turns.roots[arm] for arm in ARMS])
        for kind, sides in turns.readings.items()
    }
    tests = sum(_tests(kind, *_values(sides)) for kind, sides in rows.items())
    kinds = [
        _explained(kind, turns, sides, tests, time if metric == "wall_time" else None)
        for kind, sides in rows.items()
    ]
    return Answer(
        turns=turns,
        metric=metric,
        names=names,
        time=time,
        memory=_change_of(turns.pairs, PEAK_RSS),
        kinds=tuple(kinds),
        differences=differences([p.a for p in turns.pairs], [p.b for p in turns.pairs]),
        code=_code(turns, rows),
    )


def _change_of(pairs: Sequence[Pair], metric: str) -> Change | None:
    values = [both for pair in pairs if (both := pair.values(metric)) is not None]
    if not values:
        return None
    base, new = (numbers_of([one[side] for one in values]) for side in (0, 1))
    return change_of(base, new, FALSE_ALARMS)


Values = list[dict[RowKey, float]]


def _values(sides: Sequence[Sequence[Keyed]]) -> tuple[Values, Values]:
    base, new = (
        [{key: row.value for key, row in profile.items()} for profile in side] for side in sides
    )
    return base, new


def _tests(kind: str, base: Values, new: Values) -> int:
    if kind == "counters":  # each event is a figure of its own
        return len({key for side in (base, new) for one in side for key in one})
    return len(rows_to_test(base, new)) + 1  # and what all rows have in common


def _explained(
    kind: str, turns: Turns, sides: Sequence[Sequence[Keyed]], tests: int, time: Change | None
) -> ExplainedKind:
    base, new = _values(sides)
    readings = turns.readings[kind]
    first = readings["a"][0]
    if kind == "counters":
        found = _counted(base, new, tests)
    else:
        found = attribute(base, new, tests=tests, has_common=first.unit == "s")
    shares_of = time if time is not None and time.is_sure and first.unit == "s" else None
    whole = found.total.base
    moved = sum(row.change.difference for row in found.rows)
    if shares_of and moved * shares_of.difference > 0:
        whole = moved
    rows = [
        _row(one, sides, None if kind == "counters" else whole, first.unit) for one in found.rows
    ]
    rows.sort(key=lambda row: not row.named)  # stable: the largest difference first
    named = [row for row in rows if row.named]
    return ExplainedKind(
        kind=kind,
        tool=first.tool,
        unit=first.unit,
        figure=first.figure,
        is_per_step=first.is_per_step,
        rows=tuple(rows[: max(MOST_ROWS, len(named))]),
        tested=len(found.rows),
        total=found.total,
        common=found.common,
        common_is_named=found.common_is_named,
        explained=_explained_share(shares_of, found.total.base, named) if shares_of else None,
        turns=len(readings["a"]),
        notes=_notes(turns.lost.get(kind), [*readings["a"], *readings["b"]]),
        folders={arm: turns.folders[kind][arm] for arm in ARMS},
    )


def _explained_share(time: Change, profiled: float, named: Sequence[ExplainedRow]) -> float | None:
    """Return the share of the trials' difference that the named rows make up.

    A profiler slows the code, so its times are brought to those of the trials first.
    """
    if profiled <= 0 or time.difference == 0:
        return None
    scale = min(1.0, time.base / profiled)
    return scale * sum(row.change.difference for row in named) / time.difference


def _counted(base: Values, new: Values, tests: int) -> Attribution[RowKey]:
    """Return each event of the counters as a row of its own; they add up to nothing."""
    rows = []
    for key in dict.fromkeys(key for side in (base, new) for one in side for key in one):
        ours, theirs = (numbers_of([one.get(key, 0.0) for one in side]) for side in (base, new))
        change = change_of(ours, theirs, FALSE_NAMES / max(1, tests))
        named = change.is_sure and abs(change.difference) >= RELEVANT_SHARE * change.base
        rows.append(Attributed(row=key, change=change, named=named))
    nothing = Change(base=0.0, new=0.0, difference=0.0, interval=None)
    return Attribution(rows=tuple(rows), total=nothing, common=None, common_is_named=False)


def _notes(lost: str | None, readings: Sequence[Reading]) -> tuple[str, ...]:
    said = tuple(dict.fromkeys(note for one in readings for note in one.notes))[:5]
    return (lost, *said) if lost else said


def _row(
    one: Attributed[RowKey], sides: Sequence[Sequence[Keyed]], whole: float | None, unit: str
) -> ExplainedRow:
    key = one.row
    calls = (_calls(sides[0], key), _calls(sides[1], key))
    newest = next((p[key] for side in reversed(sides) for p in side if key in p), None)
    line = f":{newest.line}" if newest and newest.line else ""
    return ExplainedRow(
        name=key.name,
        where=f"{key.file}{line}" if key.file else "",
        change=one.change,
        named=one.named,
        share=one.change.difference / whole if whole else None,
        calls=calls,
        kind=_kind(one.change, calls, unit),
        native=_native(sides, key, one.change) if one.named else (),
    )


def _calls(side: Sequence[Keyed], key: RowKey) -> float | None:
    """Return the mean number of calls of a step; 0 in a profile that lacks the row."""
    found = [profile[key].calls if key in profile else 0.0 for profile in side]
    known = [calls for calls in found if calls is not None]
    return sum(known) / len(known) if known and len(known) == len(found) else None


def _kind(change: Change, calls: tuple[float | None, float | None], unit: str) -> Kind:
    if change.base <= 0 < change.new:
        return "new"
    if change.new <= 0 < change.base:
        return "gone"
    if unit != "s":
        return "larger" if change.difference > 0 else "smaller"
    before, after = calls
    if before and after and abs(after / before - 1) > _SAME and change.base > 0:
        # The number of calls is the cause if it changed at least half as much as the time did.
        if (
            change.difference > 0
            and after > before
            and 2 * (after / before - 1) > (change.difference / change.base)
        ):
            return "more often"
        if (
            change.difference < 0
            and after < before
            and 2 * (1 - after / before) > (-change.difference / change.base)
        ):
            return "less often"
    return "slower" if change.difference > 0 else "faster"


def _native(sides: Sequence[Sequence[Keyed]], key: RowKey, change: Change) -> tuple[str, ...]:
    """Return the C function that is most of a row's difference, with its calls in a step."""
    sums: list[dict[str, list[float]]] = []
    for side in sides:
        own: dict[str, list[float]] = {}
        for profile in side:
            for name, calls, value in profile[key].native if key in profile else ():
                found = own.setdefault(name, [0.0, 0.0])
                found[0] += calls / len(side)
                found[1] += value / len(side)
        sums.append(own)
    nothing = [0.0, 0.0]
    apart = {
        name: sums[1].get(name, nothing)[1] - sums[0].get(name, nothing)[1]
        for name in {**sums[0], **sums[1]}
    }
    if not apart:
        return ()
    name = max(apart, key=lambda one: abs(apart[one]))
    if 2 * abs(apart[name]) < abs(change.difference):
        return ()
    before, after = (side.get(name, nothing)[0] for side in sums)
    return (f"{name}, {count_text(before)} -> {count_text(after)} calls",)


def count_text(count: float) -> str:
    """Return a number of calls: whole where it is, three digits where it is not."""
    return f"{count:.0f}" if abs(count - round(count)) < 0.005 or count >= 100 else f"{count:.3g}"


def _code(turns: Turns, rows: Mapping[str, Sequence[Sequence[Keyed]]]) -> tuple[CodeChange, ...]:
    """Return the differences of the files in which rows were found, those of most time first."""
    places: dict[str, list[str | None]] = {}
    weight: dict[str, float] = {}
    for kind in ("cprofile", "memory_lines", "sampling"):
        for number, side in enumerate(rows.get(kind, ())):
            for profile in side:
                for key, row in profile.items():
                    if key.file:
                        places.setdefault(key.file, [None, None])[number] = row.path
                        weight[key.file] = weight.get(key.file, 0.0) + row.value
    ordered = sorted(places, key=lambda file: -weight[file])
    files = [SourceFile(file, *places[file]) for file in ordered]
    return code_changes(files, [turns.roots[arm] for arm in ARMS])


def _change_row(change: Change | None) -> dict[str, Any] | None:
    if change is None:
        return None
    return {
        "base": change.base,
        "new": change.new,
        "difference": change.difference,
        "low": change.interval.low if change.interval else None,
        "high": change.interval.high if change.interval else None,
        "sure": change.is_sure,
    }


def document_of(answer: Answer) -> dict[str, Any]:
    """Return the document that `--format=json` prints."""
    turns = answer.turns
    first = answer.first
    return {
        "method": turns.method,
        "metric": answer.metric,
        "base": answer.names["a"],
        "new": answer.names["b"],
        "turns": len(turns.pairs),
        "stopped_by": turns.stopped_by,
        "failure": turns.failure,
        "seed": turns.seed,
        "time": _change_row(answer.time),
        "memory": _change_row(answer.memory),
        "confidence": 1 - FALSE_NAMES,
        "first": None
        if first is None
        else {"kind": first[0].kind, "name": first[1].name, "where": first[1].where},
        "profiles": [_kind_row(kind) for kind in answer.kinds],
        "left_out": [{"kind": kind, "reason": why} for kind, why in turns.left_out.items()],
        "environment_differences": [difference_row(one) for one in answer.differences],
        "code": [
            {
                "file": one.file,
                "added": one.added,
                "removed": one.removed,
                "functions": list(one.functions),
            }
            for one in answer.code
        ],
        "trials": [
            {"turn": pair.number, "first": pair.first, "a": str(pair.a.path), "b": str(pair.b.path)}
            for pair in turns.pairs
        ],
    }


def _kind_row(kind: ExplainedKind) -> dict[str, Any]:
    return {
        "kind": kind.kind,
        "tool": kind.tool,
        "unit": kind.unit,
        "figure": kind.figure,
        "per_step": kind.is_per_step,
        "turns": kind.turns,
        "tested": kind.tested,
        "total": _change_row(kind.total),
        "common": _change_row(kind.common),
        "common_is_named": kind.common_is_named,
        "explained": kind.explained,
        "rows": [
            {
                "name": row.name,
                "where": row.where,
                **(_change_row(row.change) or {}),
                "named": row.named,
                "share": row.share,
                "calls_base": row.calls[0],
                "calls_new": row.calls[1],
                "change": row.kind,
                "native": list(row.native),
            }
            for row in kind.rows
        ],
        "notes": list(kind.notes),
        "folders": dict(kind.folders),
    }
