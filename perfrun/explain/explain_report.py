"""An explanation as text: the difference, a table for each kind of profile, what else differs."""

from __future__ import annotations

from collections.abc import Sequence

from perfrun.analysis.attribution import FALSE_NAMES, Change
from perfrun.compare.comparison_table import environment_lines
from perfrun.explain.answer import Answer, ExplainedKind, ExplainedRow, count_text
from perfrun.reports.figures import percent
from perfrun.reports.table import Column, Table, coloured, markdown_text
from perfrun.reports.terminal import Terminal
from perfrun.shown import markdown, markdown_code
from perfrun.text import with_unit

# The first line: nobody sees it, and no text from outside can look like it.
MARKER = "<!-- perfrun explain -->"
_SHOWN_UNNAMED = 3  # rows of a table besides the named
_MOST_NAMED = 30
_MOST_MARKDOWN = 60_000  # characters; GitHub takes 65,536 in a comment
_TITLES = {
    "cprofile": "Python functions",
    "torch": "PyTorch operators",
    "tensorflow": "TensorFlow operators",
    "sampling": "functions, sampled",
    "memory": "memory by place, at its peak",
    "memory_lines": "memory by line, at its peak",
    "counters": "events of processor and kernel",
}


def show(answer: Answer, record: str | None, screen: Terminal) -> None:
    """Print the explanation."""
    screen.lines(["", *_headline(answer)])
    for kind in answer.kinds:
        screen.lines(["", _title(kind)])
        screen.table(_table(kind))
        screen.lines(_below(kind))
    screen.lines(["", *_facts(answer, record)])


def markdown_report(answer: Answer, record: str | None) -> str:
    """Return the explanation as GitHub's Markdown, with escaped names."""
    first, *others = _headline(answer)
    parts = [MARKER, f"### perfrun explain: {markdown(first)}", *map(markdown, others)]
    for kind in answer.kinds:
        parts += [f"**{markdown(_title(kind))}**", markdown_text(_table(kind)).rstrip()]
        parts += ["\n".join(f"- {markdown(line)}" for line in _below(kind))]
    parts.append("\n".join(f"- {markdown(line)}" for line in _facts(answer, None)))
    if record:
        parts.append(f"All rows: {markdown_code(record)}")
    text = "\n\n".join(part for part in parts if part) + "\n"
    return text if len(text) <= _MOST_MARKDOWN else "\n\n".join(parts[:3]) + "\n"


def _headline(answer: Answer) -> list[str]:
    """Return what happened, then its cause."""
    turns = answer.turns
    time = answer.time
    ratio = time.new / time.base if time.base > 0 else 1.0
    apart = _difference(time, "s")
    if time.is_sure:
        word = "slower" if time.difference > 0 else "faster"
        lines = [f"{turns.method}: new is {word}, {_both(time, 's')}: {apart}, {ratio:.3f} times"]
    else:
        lines = [f"{turns.method}: no difference is shown, {_both(time, 's')}: {apart}"]
    if answer.memory is not None and answer.memory.is_sure:
        memory = answer.memory
        lines.append(f"Peak memory: {_both(memory, 'bytes')}: {_difference(memory, 'bytes')}.")
    first = answer.first
    if first is not None:
        lines.append(f"First cause, by {_TITLES[first[0].kind]}: {_cause(*first)}.")
    elif any(kind.common_is_named for kind in answer.kinds):
        lines.append("No row is named: all rows moved alike.")
    else:
        lines.append("No row is named.")
    return lines


def _cause(kind: ExplainedKind, row: ExplainedRow) -> str:
    place = f" ({row.where})" if row.where else ""
    return f"{row.name}{place}: {_what(kind, row)}"


def _title(kind: ExplainedKind) -> str:
    of = ", on the device" if kind.figure == "device_s" else ""
    per = ", of one step" if kind.is_per_step else ""
    return f"{_TITLES[kind.kind]}, by {kind.tool}{of}{per}:"


def _table(kind: ExplainedKind) -> Table:
    columns = (
        Column(heading="what"),
        Column(heading="base", right=True),
        Column(heading="new", right=True),
        Column(heading=f"difference ({percent(1 - FALSE_NAMES)} over all rows)"),
        Column(heading="share", right=True),
        Column(heading="why"),
    )
    named = [row for row in kind.rows if row.named][:_MOST_NAMED]
    others = [row for row in kind.rows if not row.named][:_SHOWN_UNNAMED]
    rows = [
        (
            " ".join(filter(None, (row.name, row.where))),
            _value(row.change.base, _unit(kind, row)),
            _value(row.change.new, _unit(kind, row)),
            _difference(row.change, _unit(kind, row)),
            "-" if row.share is None else _share(row.share),
            coloured(_what(kind, row), _colour(row)) if row.named else "-",
        )
        for row in (*named, *others)
    ]
    narrow = (
        ("what", "share", "why"),
        ("what", "base", "new", columns[3].heading),
    )
    return Table(columns=columns, rows=tuple(rows), narrow=narrow)


def _share(share: float) -> str:
    return f"{100 * share:.0f} %" if abs(share) >= 0.1 else f"{100 * share:.1f} %"


def _colour(row: ExplainedRow) -> str:
    return "red" if row.change.difference > 0 else "green"


def _unit(kind: ExplainedKind, row: ExplainedRow) -> str:
    if kind.kind == "counters":
        return "s" if row.name == "task-clock" else ""
    return kind.unit


def _what(kind: ExplainedKind, row: ExplainedRow) -> str:
    """Return what became of a row: `slower, 3.1 us -> 9 us a call`."""
    before, after = row.calls
    words: list[str] = [row.kind]
    if kind.unit == "s" and before is not None and after is not None:
        if row.kind in ("more often", "less often"):
            words.append(f"{count_text(before)} -> {count_text(after)} calls")
        elif row.kind in ("slower", "faster") and before > 0 and after > 0:
            costs = (row.change.base / before, row.change.new / after)
            words.append(f"{_value(costs[0], 's')} -> {_value(costs[1], 's')} a call")
            if abs(after / before - 1) > 0.02:
                words.append(f"{count_text(before)} -> {count_text(after)} calls")
        elif row.kind in ("new", "gone"):
            words.append(f"{count_text(after if row.kind == 'new' else before)} calls")
    return "; ".join((", ".join(words), *row.native))


def _value(value: float, unit: str) -> str:
    if unit:
        return with_unit(value, unit)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _both(change: Change, unit: str) -> str:
    return f"{_value(change.base, unit)} -> {_value(change.new, unit)}"


def _difference(change: Change, unit: str) -> str:
    """Return a difference with its interval: `+4.2 ms (3.9 ms..4.5 ms)`."""
    middle = _signed(change.difference, unit)
    if change.interval is None:
        return middle
    low, high = _signed(change.interval.low, unit), _signed(change.interval.high, unit)
    return f"{middle} ({low}..{high})"


def _signed(value: float, unit: str) -> str:
    return f"{'-' if value < 0 else '+'}{_value(abs(value), unit)}"


def _below(kind: ExplainedKind) -> list[str]:
    lines = []
    named = sum(row.named for row in kind.rows)
    if kind.explained is not None:
        lines.append(
            f"The named rows make up {100 * kind.explained:.0f} % of the difference between the "
            "trials, which ran without a profiler (its mean slowdown is taken out)."
        )
    if kind.common is not None and kind.common_is_named:
        alike = kind.common.interval
        span = f" ({1 + alike.low:.3f}..{1 + alike.high:.3f})" if alike else ""
        lines.append(f"All rows alike: {kind.common.new:.3f} times{span}; rows are beyond that.")
    if kind.kind != "counters":
        lines.append(f"Named: {named} of {kind.tested} rows that are large enough to matter.")
    return lines + list(kind.notes)


def _facts(answer: Answer, record: str | None) -> list[str]:
    turns = answer.turns
    ended = f"{len(turns.pairs)} turns ({turns.stopped_by}), seed {turns.seed}"
    lines = [f"base is {answer.names['a']}, new is {answer.names['b']}; {ended}."]
    if turns.failure:
        lines.append(f"It ended early: {turns.failure}")
    lines += environment_lines(answer.differences)
    lines += [_code_line(one.file, one.added, one.removed, one.functions) for one in answer.code]
    lines += [f"Profile {kind} is left out: {why}" for kind, why in turns.left_out.items()]
    return lines + ([f"All rows, trials and folders of the profiles: {record}"] if record else [])


def _code_line(file: str, added: int, removed: int, functions: Sequence[str]) -> str:
    within = f", in {', '.join(functions)}" if functions else ""
    return f"Code: {file}: +{added} -{removed} lines{within}"
