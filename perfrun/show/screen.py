"""One screen about a trial as lines of text: 80 columns, and at most 40 lines without a command.

Text from outside is cleaned before it is wrapped: a secret that was cut in two would be known for
none.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from perfrun.show.histogram import histogram_lines
from perfrun.show.run_again import RunAgain
from perfrun.show.view import Doubt, Figure, Steps, TrialView
from perfrun.shown import line
from perfrun.text import duration, spread, with_unit

WIDTH = 80
LINES = 40
_LABEL = 11  # columns
_LEAST_FIRST = ("machine", "settings", "container", "steps", "memory", "versions", "code")
_MOST_FIGURES = 6
_MOST_DOUBTS = 4
_LONGEST_COMMAND = 4000  # characters
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


def screen(shown: TrialView, again: RunAgain, *, blocks: bool) -> list[str]:
    """Return the lines about a trial; with `blocks` the histogram has block characters.

    Where there is more than a screen holds, the sections that matter least are left out.
    """
    last = list(_again(again))
    sections = {
        "heading": list(_heading(shown)),
        "outcome": _outcome(shown),
        "figures": _labelled("figures", _figures(shown), most=_MOST_FIGURES + 1),
        "steps": _labelled("steps", _steps(shown.steps, blocks=blocks), most=10),
        "memory": _labelled("memory", [_sizes(shown.memory)], most=2),
        "phases": _labelled("phases", [_phases(shown), _parts(shown)], most=3),
        "grade": _labelled("grade", _grade(shown), most=_MOST_DOUBTS + 2),
        "versions": _labelled("versions", [_versions(shown)], most=2),
        "machine": _labelled("machine", [", ".join(shown.machine)], most=2),
        "code": _labelled("code", ["; ".join(shown.commits)], most=2),
        "container": _labelled("container", [shown.container], most=1),
        "settings": _labelled("settings", [shown.settings], most=2),
        "summary": _labelled("summary", [shown.summary], most=1, whole=True),
    }
    for name in _LEAST_FIRST:
        if sum(len(lines) for lines in sections.values()) + len(last) <= LINES:
            break
        del sections[name]
    return [text for lines in sections.values() for text in lines] + last


def _heading(shown: TrialView) -> Iterator[str]:
    yield from _wrapped(shown.method, WIDTH, most=2)
    facts = [f"trial {shown.trial_id}", _time(shown.timestamp)]
    facts += [f"label {shown.label}"] if shown.label else []
    facts += [f"run {shown.run_id}"] if shown.run_id else []
    yield from _wrapped(", ".join(facts), WIDTH, most=2)


def _time(timestamp: float) -> str:
    try:
        return f"{datetime.fromtimestamp(timestamp):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):  # beyond Python's calendar
        return "of an unknown time"


def _outcome(shown: TrialView) -> list[str]:
    if shown.outcome == "passed":
        return []
    reason = f": {shown.reason}" if shown.reason else ""
    return _labelled("outcome", [f"{shown.outcome}{reason}", *shown.error], most=6)


def _figures(shown: TrialView) -> Iterator[str]:
    some = shown.figures[:_MOST_FIGURES]
    names = [_narrow(one.name, 40) for one in some]
    width = max(map(len, names), default=0)
    for name, one in zip(names, some, strict=True):
        yield f"{name:<{width}}  {_value(one)}"
    more = shown.more_figures + len(shown.figures) - len(some)
    notes = []
    if any(one.low is not None for one in some):
        notes.append("(..): 95 % interval of the trial's median")
    if more > 0:
        notes.append(f"{more} more: --format=json")
    if notes:
        yield "; ".join(notes)


def _value(one: Figure) -> str:
    if one.low is None or one.high is None:
        return with_unit(one.value, one.unit)
    return spread(one.value, one.low, one.high, one.unit)


def _steps(steps: Steps | None, *, blocks: bool) -> Iterator[str]:
    if steps is None:
        return
    each = f" of {steps.steps_each} steps each" if steps.steps_each > 1 else ""
    what = "intervals" if each else "steps"
    judged = _STEADY.get(steps.steady, "")
    more = f"; {len(steps.others)} other series" if steps.others else ""
    name = _narrow(steps.name, 30)
    yield f"{steps.intervals:,} timed {what}{each} of {name}{f': {judged}' if judged else ''}{more}"
    yield from histogram_lines(steps.bins, WIDTH - _LABEL, blocks=blocks)
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


def _grade(shown: TrialView) -> Iterator[str]:
    if not shown.grade:
        return
    words = _GRADES.get(shown.grade, "")
    yield f"{_narrow(shown.grade, 10)}{', disturbed' if shown.disturbed else ''}: {words}"
    for doubt in shown.doubts[:_MOST_DOUBTS]:
        yield f"- {_doubt(doubt)}"
    more = len(shown.doubts) - _MOST_DOUBTS
    if more > 0:
        yield f"- and {more} more with --format=json"


def _doubt(doubt: Doubt) -> str:
    return _narrow(doubt.text, WIDTH - _LABEL - 2)


def _again(again: RunAgain) -> Iterator[str]:
    """Yield the command, one flag a line where it is long; it is never cut."""
    if again.why_not:
        yield from _labelled("again", [f"not by perfrun: {again.why_not}"], most=2)
        return
    if not again.is_own:
        text = "no run of this workspace wrote this summary: read the command before you use it"
        yield from _labelled("again", [text], most=2)
    if again.lacks:
        text = f"another trial, as these are not on record: {'; '.join(again.lacks)}"
        yield from _labelled("again", [text], most=3)
    command = again.command
    if len(command) > _LONGEST_COMMAND:
        yield from _labelled("again", ["a long command: --format=json has it"], most=1)
    elif len(command) + _LABEL <= WIDTH:
        yield f"{'again':<{_LABEL}}{command}"
    else:
        first, *others = map(shlex.quote, again.words)
        yield f"{'again':<{_LABEL}}{first} \\"
        for word in others[:-1]:
            yield f"    {word} \\"
        yield f"    {others[-1]}"


def _labelled(label: str, texts: Iterable[str], *, most: int, whole: bool = False) -> list[str]:
    """Return a section: its label before the first line, the others below; empty texts are none."""
    room = WIDTH - _LABEL
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
    return textwrap.wrap(
        line(text),
        width,
        max_lines=most,
        placeholder=" ...",
        subsequent_indent="  ",
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def _narrow(text: str, most: int) -> str:
    shown = line(text)
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."
