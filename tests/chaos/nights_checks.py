"""What must hold after a night, whatever happened in it: each check returns lines, one a fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from nights_plan import Planted

NEAR = 6  # nights between a planted change and where a report puts it
# Of docs/research/detection.md: a step of 5 % is found within so many nights, but for that share;
# the share of series with a false alarm in a hundred nights; and the series of the suite.
PATIENCE, MISSED, FALSE, SERIES = 21, 0.05, 0.034, 10
UNLIKELY = 0.999  # fewer of a thousand seeds are worse than what is let pass
STATUS = {  # of a trial's summary, by what its worker did; others have more than one
    "failed": "failed",
    "exited": "exited",
    "crashed": "crashed",
    "oom": "crashed",
    "deadline": "timed_out",
    "interrupt": "interrupted",
    "ok": "passed",
}


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One summary on disk."""

    path: Path
    label: str
    run_id: str
    method: str
    trial_id: int
    status: str
    timestamp: float


@dataclass
class Summaries:
    """The summaries of a workspace, each read once."""

    output: Path
    known: dict[Path, Kept | None] = field(default_factory=dict)  # None: it cannot be read

    def look(self) -> list[Kept]:
        """Read what is new; forget and return what is gone."""
        there = set(self.output.glob("*/perfzero_summary.json"))
        gone = [kept for path, kept in self.known.items() if path not in there]
        self.known = {path: kept for path, kept in self.known.items() if path in there}
        for path in there - self.known.keys():
            self.known[path] = _kept(path)
        return [kept for kept in gone if kept is not None]

    def forget(self, path: Path) -> None:
        """Read it anew at the next look: it was damaged."""
        self.known.pop(path, None)

    def all(self) -> list[Kept]:
        return [kept for kept in self.known.values() if kept is not None]

    def of(self, label: str) -> list[Kept]:
        return [kept for kept in self.all() if kept.label == label]


def _kept(path: Path) -> Kept | None:
    from perfrun.summary.record import read_record

    try:
        record = read_record(path)
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Kept(
        path=path,
        label=record.label,
        run_id=record.run_id,
        method=record.method,
        trial_id=int(document["benchmark_result"]["trial_id"]),
        status=record.status.value,
        timestamp=record.timestamp,
    )


def ending(code: int, out: str, err: str, *, may_be_2: bool, signalled: bool) -> Iterator[str]:
    """Check the exit status, and that nothing said was a traceback."""
    allowed = {0, 1} | ({2} if may_be_2 else set()) | ({130} if signalled else set())
    if code not in allowed:
        yield f"exit status {code}"
    if code == 2 and "perfrun: " not in err:
        yield "exit status 2, and standard error does not say why"
    for name, text in (("output", out), ("error", err)):
        if "Traceback (most recent" in text or "internal error" in text:
            yield f"standard {name} has an internal error: {_around(text)}"
    if "\x1b" in out + err or "\n::error" in out + err:
        yield "what a trial said reached the terminal as it was"


def _around(text: str) -> str:
    at = max(text.find("Traceback (most recent"), text.find("internal error"))
    return text[at : at + 1500]


def trials(
    lines: Sequence[Mapping[str, str]], summaries: Summaries, err: str, *, disk_failed: bool
) -> Iterator[str]:
    """Check that each trial that ended has its summary, with the status that it ended with."""
    for line in lines:
        if line["event"] != "ended":
            continue
        path = Path(line["folder"]) / "perfzero_summary.json"
        if "/ab/" in str(path):
            if not path.exists() and not disk_failed:
                yield f"lost: no summary of the pair's trial {path.parent.name}"
            continue
        kept = summaries.known.get(path)
        if kept is None:
            if path.parent.name not in err:
                yield f"lost: no summary of {path.parent.name} ({line['fate']}), and no word of it"
            continue
        wanted = STATUS.get(line["fate"])
        if wanted is not None and kept.status != wanted:
            yield f"{path.parent.name} is {kept.status}; its worker's end was {line['fate']}"


def nothing_twice(own: Iterable[Kept]) -> Iterator[str]:
    """Check that no trial of a run has two results."""
    ended = Counter(
        (one.run_id, one.method, one.trial_id) for one in own if one.status != "interrupted"
    )
    for (run_id, method, trial_id), count in ended.items():
        if count > 1:
            yield f"twice: {method}, trial {trial_id} of {run_id} has {count} summaries"


def report_of(folder: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def report(found: Mapping[str, Any], code: int, own: Sequence[Kept], asked: int) -> Iterator[str]:
    """Check the report against the exit status and the summaries."""
    bad = [m for m in found["methods"] if m["state"] in ("failed", "out_of_bounds", "not_run")]
    worse = [c for c in found["changes"] if is_regression(c)]
    if (code == 0) != (not bad and not found["errors"] and not worse) or found["ok"] != (code == 0):
        yield f"exit status {code}, but the report has {len(bad)} bad, {found['errors']}, {worse}"
    left_out = sum(" is left out: " in note for note in found["notes"])
    counted = [one for one in own if one.status != "interrupted"]
    reported = sum(method["trials"] for method in found["methods"])
    if reported + left_out > len(counted):
        yield f"the report has {reported} trials, and there are {len(counted)}"
    for method in found["methods"]:
        if method["trials"] < asked and not method["why"] and not method["failures"]:
            yield f"{method['method']} has {method['trials']} trials of {asked}, and no reason"
    if not found["errors"] and reported + left_out < len(counted):
        yield f"{len(counted)} trials have ended, and the report has {reported}"


def is_regression(change: Mapping[str, Any]) -> bool:
    if not change["is_new"] or change["direction"] != "worse":
        return False
    if change["status"] == "candidate":
        return not change["machine_suspect"]
    return bool(change["status"] == "confirmed")


def index(
    workspace: Path, summaries: Summaries, *, refresh: bool, fresh: Path | None
) -> Iterator[str]:
    """Check that the index has each summary once; with `fresh`, that it is as one made anew."""
    from perfrun.options.store_address import parse_address
    from perfrun.store.index import open_store

    with open_store(parse_address(None, workspace)) as store:
        if refresh:
            store.refresh()
        have = _content(store) if fresh else {}
        paths = [str(trial.path) for trial in store.trials()]
    if len(paths) != len(set(paths)):
        yield "twice in the index: " + ", ".join(p for p, n in Counter(paths).items() if n > 1)
    there = {str(one.path) for one in summaries.all()}
    if set(paths) != there:
        more, less = set(paths) - there, there - set(paths)
        yield f"the index has {len(more)} that are not there, lacks {len(less)}: {more or less}"
    if fresh is None:
        return
    for path in fresh.glob("fresh.sqlite*"):
        path.unlink()
    with open_store(parse_address(str(fresh / "fresh.sqlite"), workspace)) as store:
        store.refresh([workspace / "output"])
        wanted = _content(store)
    if have != wanted:
        keys = [key for key in have.keys() | wanted.keys() if have.get(key) != wanted.get(key)]
        yield f"the index is not what a fresh one is: {keys[:3]}"


def _content(store: Any) -> dict[Any, Any]:
    return {
        str(series.key): sorted(
            (row.execution_id, value, row.disturbed, row.label, row.status, str(row.commits))
            for row, value in zip(series.origins.rows, series.values, strict=True)
        )
        for series in store.series()
    }


def pruned(
    gone: Sequence[Kept],
    summaries: Summaries,
    found: Mapping[str, Any] | None,
    kept_nights: int,
) -> Iterator[str]:
    """Check that what has gone was let go by the retention."""
    from perfrun.changes.observations import night_of

    there = summaries.all()
    nights = sorted({night_of(one.timestamp) for one in (*there, *gone)}, reverse=True)
    last = set(nights[:kept_nights])
    for one in gone:
        if night_of(one.timestamp) in last:
            yield f"removed, though of the last {kept_nights} nights: {one.path.parent.name}"
    names = {one.path.parent.name for one in gone}
    for change in (found or {}).get("changes", ()):
        evidence = {change["before_execution_id"], change["after_execution_id"]}
        if evidence & names:
            yield f"removed, though evidence of a change: {evidence & names}"


def night_files(nights: Path, damaged: set[Path]) -> Iterator[str]:
    """Check that each night's record can be read."""
    from perfrun.nightly.night_state import _load

    for path in nights.glob("*/night.json"):
        if path not in damaged and _load(path) is None:
            yield f"{path.parent.name}/night.json cannot be read"


@dataclass
class Verdicts:
    """The planted changes, and what the reports have said of them and of others."""

    planted: list[Planted] = field(default_factory=list)
    days: list[date] = field(default_factory=list)  # of each planted change's night
    told: dict[tuple[int, str, str], list[str]] = field(default_factory=dict)  # place -> nights
    seen: dict[tuple[int, str, str], str] = field(default_factory=dict)  # first report with it
    observed: Counter[int] = field(default_factory=Counter)  # good nights since, by place
    delays: dict[int, int] = field(default_factory=dict)  # observations to the first word
    false: dict[tuple[str, str, str, str], str] = field(default_factory=dict)
    machine: set[tuple[str, str, str, str]] = field(default_factory=set)
    slow_days: set[date] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)  # another change of the method came too soon
    blamed: int = 0  # regressions that were told in the machine's bad nights
    nights: int = 0

    def plant(self, planted: Planted, day: date) -> None:
        for place, earlier in enumerate(self.planted):
            if earlier.method == planted.method and place not in self.delays:
                self.broken.add(place)
        self.planted.append(planted)
        self.days.append(day)

    def night(self, found: Mapping[str, Any]) -> Iterator[str]:
        """Take in a report; yield what is wrong with it."""
        self.nights += 1
        for method in found["methods"]:
            name = method["method"].rpartition(".")[2]
            if method["environment"] == "host" and method["trials"]:
                for place, one in enumerate(self.planted):
                    self.observed[place] += one.method == name
        for change in found["changes"]:
            yield from self._change(found["night"], change)

    def _change(self, night: str, change: Mapping[str, Any]) -> Iterator[str]:
        name = change["method"].rpartition(".")[2]
        place = self._place(name, change["direction"], date.fromisoformat(change["night"]))
        if place is None:
            day, alarm = (date.fromisoformat(change[key]) for key in ("night", "alarm_night"))
            key = (name, change["metric"], change["direction"], change["alarm_night"])
            around = any(day_of_slow <= alarm for day_of_slow in self.slow_days) and any(
                abs((slow - near).days) <= 20 for slow in self.slow_days for near in (day, alarm)
            )
            if around:
                self.machine.add(key)
                self.blamed += is_regression(change)
            elif change["is_new"]:
                self.false.setdefault(key, night)
            return
        self.delays.setdefault(place, self.observed[place])
        where = (place, change["environment"], change["metric"])
        self.seen.setdefault(where, night)
        if change["is_new"]:
            told = self.told.setdefault(where, [])
            if night not in told:
                told.append(night)
            if len(told) > 1:
                yield f"told as new twice, {told}: {change['metric']} of {change['method']}"
        elif where not in self.told:
            yield (
                f"told, and never as new: {change['metric']} of {change['method']} of "
                f"{change['night']}, alarm {change['alarm_night']}"
            )
            self.told[where] = []

    def _place(self, name: str, direction: str, day: date) -> int | None:
        near = [
            (abs((day - self.days[place]).days), place)
            for place, one in enumerate(self.planted)
            if one.method == name
            and one.direction == direction
            and abs((day - self.days[place]).days) <= NEAR + 8
        ]
        return min(near)[1] if near else None

    def missed(self) -> list[Planted]:
        """Return the planted changes that no report has had in their time."""
        return [
            one
            for place, one in enumerate(self.planted)
            if place not in self.broken
            and self.observed[place] > PATIENCE
            and self.delays.get(place, 10**6) > PATIENCE
        ]

    def rates(self) -> Iterator[str]:
        """Check that no more was missed or false than docs/research/detection.md says."""
        from scipy.stats import binom, poisson

        missed, false = len(self.missed()), len(self.false)
        most_missed = binom.ppf(UNLIKELY, self.judged, MISSED) if self.judged else 0
        most_false = poisson.ppf(UNLIKELY, FALSE * SERIES * self.nights / 100)
        if missed > most_missed:
            yield f"{missed} of {self.judged} changes were missed, more than {most_missed:.0f}"
        if false > most_false:
            yield f"{false} false alarms in {self.nights} nights, more than {most_false:.0f}"

    @property
    def judged(self) -> int:
        """The number of planted changes whose time is over, or that were told."""
        return sum(
            place not in self.broken and (place in self.delays or self.observed[place] > PATIENCE)
            for place in range(len(self.planted))
        )
