"""One screen about a trial as lines of text: at most 40 of them without the command.

Text from outside is cleaned before it is wrapped: a secret that was cut in two would be known for
none.
"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from perfrun.reports.figures import named_value
from perfrun.reports.run_table import STATUS_COLOURS
from perfrun.show.histogram import histogram_lines
from perfrun.show.run_again import RunAgain
from perfrun.show.view import Steps, TrialView
from perfrun.shown import line
from perfrun.shown import width as columns_of
from perfrun.summary.document import Status
from perfrun.text import duration, with_unit

WIDTH = 80  # where there is no terminal, and on a wider one
LEAST_WIDTH = 40
LINES = 40
_LABEL = 11  # columns
_LEAST_FIRST = ("machine", "settings", "container", "steps", "memory", "versions", "code")
_MOST_FIGURES = 6
_MOST_DOUBTS = 4
_LONGEST_COMMAND = 4000  # characters
_OUTCOME_LABEL = f"{'outcome':<{_LABEL}}"
_GRADES = {
    "A": "nothing found that lessens the trust in these figures",
    "B": "good, with one doubt",
    "C": "fair, with two doubts",
    "D": "use these figures with care",
    "E": "run it again before you decide anything by it",
    "F": "no figure to decide anything by: run it again",
}
_STEADY = {
    "flat": "steady",
    "warmup": "steady after a further warm-up",
    "slowdown": "it became slower while it was timed",
    "cyclic": "its times go up and down",
    "none": "never steady",
    "too_few": "too few to tell whether they are steady",
}


def screen(shown: TrialView, again: RunAgain, *, blocks: bool, width: int = WIDTH) -> list[str]:
    """Return the lines about a trial; with `blocks` the histogram has block characters.

    Where there is more than a screen holds, the sections that matter least are left out. On a
    terminal that is narrower than usual a section has more lines.
    """
    width = max(min(width, WIDTH), LEAST_WIDTH)
    last = list(_again(again, width))

    def labelled(label: str, texts: Iterable[str], most: int) -> list[str]:
        return _labelled(label, texts, width, most=math.ceil(most * WIDTH / width))

    sections = {
        "heading": list(_heading(shown, width)),
        "outcome": labelled("outcome", _outcome(shown), 6),
        "figures": labelled("figures", _figures(shown), _MOST_FIGURES + 1),
        "steps": labelled("steps", _steps(shown.steps, width, blocks=blocks), 10),
        "memory": labelled("memory", [_sizes(shown.memory)], 2),
        "phases": labelled("phases", [_phases(shown), _parts(shown)], 3),
        "grade": labelled(
            "grade" if _ran(shown) else "beside it", _grade(shown), 2 * _MOST_DOUBTS + 2
        ),
        "versions": labelled("versions", [_versions(shown)], 2),
        "machine": labelled("machine", [", ".join(shown.machine)], 2),
        "code": labelled("code", ["; ".join(shown.commits)], 2),
        "container": labelled("container", [shown.container], 1),
        "settings": labelled("settings", [shown.settings], 2),
        "summary": _labelled("summary", [shown.summary], width, most=1, whole=True),
    }
    for name in _LEAST_FIRST:
        if sum(len(lines) for lines in sections.values()) + len(last) <= LINES:
            break
        del sections[name]
    return [text for lines in sections.values() for text in lines] + last


def colours(shown: TrialView) -> dict[str, str]:
    """Return the words of the screen that have a colour, as those of a run have."""
    passed = shown.outcome == Status.PASSED
    outcome = next((c for s, c in STATUS_COLOURS.items() if s.value == shown.outcome), "red")
    found = {} if passed else {f"{_OUTCOME_LABEL}{shown.outcome}": outcome}
    if shown.grade and _ran(shown):
        found[_grade_word(shown)] = "yellow" if shown.doubts else "green"
    return found


def _heading(shown: TrialView, width: int) -> Iterator[str]:
    yield from _wrapped(shown.method, width, most=math.ceil(2 * WIDTH / width))
    facts = [f"trial {shown.trial_id}", _time(shown.timestamp)]
    facts += [f"label {shown.label}"] if shown.label else []
    facts += [f"run {shown.run_id}"] if shown.run_id else []
    yield from _wrapped(", ".join(facts), width, most=math.ceil(2 * WIDTH / width))


def _time(timestamp: float) -> str:
    try:
        return f"{datetime.fromtimestamp(timestamp):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):  # beyond Python's calendar
        return "of an unknown time"


def _outcome(shown: TrialView) -> list[str]:
    if shown.outcome == "passed":
        return []
    reason = f": {shown.reason}" if shown.reason else ""
    return [f"{shown.outcome}{reason}", *shown.error]


def _figures(shown: TrialView) -> Iterator[str]:
    some = shown.figures[:_MOST_FIGURES]
    pairs = [named_value(one.name, one.value, one.low, one.high, one.unit) for one in some]
    names = [_narrow(name, 40) for name, _ in pairs]
    room = max(map(columns_of, names), default=0)
    for name, (_, value) in zip(names, pairs, strict=True):
        yield f"{name}{'':<{room - columns_of(name)}}  {value}" if name else value
    more = shown.more_figures + len(shown.figures) - len(some)
    notes = []
    if any(one.low is not None for one in some):
        notes.append("(..): 95 % interval of the trial's median")
    if more > 0:
        notes.append(f"{more} more: --format=json")
    if notes:
        yield "; ".join(notes)


def _steps(steps: Steps | None, width: int, *, blocks: bool) -> Iterator[str]:
    if steps is None:
        return
    each = f" of {steps.steps_each} steps each" if steps.steps_each > 1 else ""
    what = "intervals" if each else "steps"
    judged = _STEADY.get(steps.steady, "")
    more = f"; {len(steps.others)} other series" if steps.others else ""
    name = _narrow(steps.name, 30)
    yield f"{steps.intervals:,} timed {what}{each} of {name}{f': {judged}' if judged else ''}{more}"
    yield from histogram_lines(steps.bins, width - _LABEL, blocks=blocks)
    if steps.few_s:
        each = "each of them " if len(steps.few_s) < steps.times else ""
        yield each + ", ".join(map(duration, steps.few_s))


def _sizes(memory: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {with_unit(size, 'bytes', 3)}" for name, size in memory)


def _phases(shown: TrialView) -> str:
    return ", ".join(f"{name} {duration(seconds, 3)}" for name, seconds in shown.phases)


def _parts(shown: TrialView) -> str:
    texts = [
        f"{name} {duration(seconds, 3)}" + (f" ({steps:,} steps)" if steps > 1 else "")
        for name, seconds, steps in shown.method_parts
    ]
    return f"in the method: {', '.join(texts)}" if texts else ""


def _versions(shown: TrialView) -> str:
    return ", ".join(f"{name} {version}" for name, version in shown.versions)


def _ran(shown: TrialView) -> bool:
    """Return True when there are figures: what did not run to its end has no grade."""
    return any(one.value == shown.outcome and one.ran for one in Status)


def _grade(shown: TrialView) -> Iterator[str]:
    if not shown.grade:
        return
    if _ran(shown):
        yield _grade_word(shown)
    for doubt in shown.doubts[:_MOST_DOUBTS]:
        yield f"- {_narrow(doubt.text, 2 * (WIDTH - _LABEL - 4))}"
    more = len(shown.doubts) - _MOST_DOUBTS
    if more > 0:
        yield f"- and {more} more with --format=json"


def _grade_word(shown: TrialView) -> str:
    disturbed = ", disturbed" if shown.disturbed else ""
    return f"{_narrow(shown.grade, 10)}{disturbed}: {_GRADES.get(shown.grade, '')}"


def _again(again: RunAgain, width: int) -> Iterator[str]:
    """Yield the command, one flag a line where it is long; it is never cut."""
    if again.why_not:
        yield from _labelled("again", [f"not by perfrun: {again.why_not}"], width, most=2)
        return
    if not again.is_own:
        text = "no run of this workspace wrote this summary: read the command before you use it"
        yield from _labelled("again", [text], width, most=2)
    if again.lacks:
        text = f"another trial, as these are not on record: {'; '.join(again.lacks)}"
        yield from _labelled("again", [text], width, most=3)
    command = again.command
    if len(command) > _LONGEST_COMMAND:
        yield from _labelled("again", ["a long command: --format=json has it"], width, most=1)
    elif len(command) + _LABEL <= width:
        yield f"{'again':<{_LABEL}}{command}"
    else:
        first, *others = map(shlex.quote, again.words)
        yield f"{'again':<{_LABEL}}{first} \\"
        for word in others[:-1]:
            yield f"    {word} \\"
        yield f"    {others[-1]}"


def _labelled(
    label: str, texts: Iterable[str], width: int, *, most: int, whole: bool = False
) -> list[str]:
    """Return a section: its label before the first line, the others below; empty texts are none."""
    room = width - _LABEL
    lines: list[str] = []
    for text in texts:
        if text:
            lines += [line(text)] if whole else _wrapped(text, room, most=most)
    if len(lines) > most:
        lines = [*lines[: most - 1], "..."] if most > 1 else lines[:1]
    labels = [label, *[""] * len(lines)]
    return [f"{name:<{_LABEL}}{one}".rstrip() for name, one in zip(labels, lines, strict=False)]


def _wrapped(text: str, width: int, *, most: int) -> list[str]:
    """Wrap a text; what would take more lines than `most` ends in dots."""
    cleaned = line(text)
    if not cleaned.isascii():
        return _folded(cleaned, width, most)
    return textwrap.wrap(
        cleaned,
        width,
        max_lines=most,
        placeholder=" ...",
        subsequent_indent="  ",
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def _folded(text: str, width: int, most: int) -> list[str]:
    """Wrap a text with characters that take two columns, or none."""
    from perfrun.reports.layout import fold  # rich; names are nearly always ASCII

    if columns_of(text) <= width:
        return [text]
    first, *others = fold(text, width - 2)
    lines = [first, *(f"  {one}" for one in others)]
    if len(lines) > most:
        last = fold(lines[most - 1].strip(), width - 6)[0]
        lines = [*lines[: most - 1], f"{'  ' if most > 1 else ''}{last} ..."]
    return lines


def _narrow(text: str, most: int) -> str:
    shown = line(text)
    if columns_of(shown) <= most:
        return shown
    if shown.isascii():
        return f"{shown[: most - 3]}..."
    from perfrun.reports.layout import fold

    return f"{fold(shown, most - 3)[0]}..."
