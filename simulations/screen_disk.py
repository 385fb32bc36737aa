"""The screening of `simulations.screen_year` as files, by `perfrun detect --screen` in each night.

    python -m simulations.screen_year --on_disk=DIR --series=16 --nights=150 --changes=5

What is confirmed in memory, by its simulated pairs, is written to the workspace as a night leaves
it. So both screen from the same levels on, except where the history alone has found a change: there
the command begins the series anew, though no pairs have confirmed it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.analysis.screening import chance, is_worth_a_pair, log_growth
from perfrun.benchmark import main as perfrun
from perfrun.changes.suspects import SuspectSeries, SuspectState, write_state
from perfrun.options.store_address import parse_address
from perfrun.store.index import open_store
from simulations.disk_year import FIRST, method, night_number, summary_of
from simulations.screen_year import Nights, Question
from simulations.year import Year

_FIRST_SCREENED = 20  # no series is long enough before


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The suspects that the command lists, against those in memory, over all nights."""

    nights: int
    alike: int  # the same series, direction, first night and number of nights
    only_in_memory: tuple[str, ...]
    only_on_disk: tuple[str, ...]
    left_out: int  # of series in which the history alone has found a change
    confirmed: int


def screen_on_disk(
    year: Year, nights: int, share: float, seed: int, workspace: Path, every: int
) -> Agreement:
    """Screen every so many nights by the command and in memory."""
    done = Nights(year, share, seed)
    alike, asked, left_out = 0, 0, 0
    lost: list[str] = []
    more: list[str] = []
    told = 0
    for night in range(nights):
        _write_night(year, night, workspace)
        if night >= _FIRST_SCREENED and night % every == 0:
            asked += 1
            listed, begun_anew = _by_command(year, workspace, night)
            here = _in_memory(year, done, night)
            left_out += sum(one[1] in begun_anew for one in here | listed)
            alike += sum(one[1] not in begun_anew for one in here & listed)
            lost += sorted(str(one) for one in here - listed if one[1] not in begun_anew)
            more += sorted(str(one) for one in listed - here if one[1] not in begun_anew)
        done.night(night)
        if len(done.confirmed) > told:
            told = len(done.confirmed)
            _write_confirmed(year, done, workspace)
    return Agreement(
        nights=asked,
        alike=alike,
        only_in_memory=tuple(lost),
        only_on_disk=tuple(more),
        left_out=left_out,
        confirmed=told,
    )


def _processor(year: Year, part: int) -> str:
    return "New" if year.owners[part] in year.owners[:part] else "Old"


def _write_night(year: Year, night: int, workspace: Path) -> None:
    for part, (history, owner) in enumerate(zip(year.histories, year.owners, strict=True)):
        if night in history.nights:
            value = history.values[history.nights.index(night)]
            document = summary_of(owner, night, 0, value, False, _processor(year, part), "")
            folder = workspace / "output" / str(document["execution_id"])
            folder.mkdir(parents=True)
            (folder / "perfzero_summary.json").write_text(json.dumps(document), encoding="utf-8")


_Suspect = tuple[int, str, str, int, int]


def _in_memory(year: Year, done: Nights, night: int) -> set[_Suspect]:
    """Return night, method, direction, first night and number of nights of what is worth a pair."""
    found = set()
    for part, owner, history in zip(done.parts, year.owners, year.histories, strict=True):
        one = part.found.get(night)
        if one is None or not one.is_suspect or history.is_canary:
            continue
        first = part.nights[part.places[night] - one.recent + 1]
        growth = log_growth(one.shift, one.noise)
        if not is_worth_a_pair(chance(one.odds, 0.0), night - first, growth):
            continue  # the command lists what a night would ask
        side = "worse" if one.shift > 0 else "better"
        found.add((night, method(owner), side, first, one.recent))
    return found


def _by_command(year: Year, workspace: Path, night: int) -> tuple[set[_Suspect], set[str]]:
    """Return the same of the command, and the methods in which it has found changes."""
    there = {
        method(owner): _processor(year, part)
        for part, (owner, history) in enumerate(zip(year.owners, year.histories, strict=True))
        if night in history.nights
    }
    words = ["detect", f"--workspace={workspace}", "--screen", "--format=json"]
    out = io.StringIO()
    with redirect_stdout(out):
        status = perfrun([*words, f"--canary={method(max(year.owners))}"])
    if status not in (0, 1):
        raise RuntimeError(f"perfrun {' '.join(words)}: exit status {status}")
    found: Mapping[str, list[Mapping[str, Any]]] = json.loads(out.getvalue())
    now = [row for row in found["suspects"] if there.get(row["method"], "-") in row["hardware"]]
    suspects = {
        (night, row["method"], row["direction"], night_number(row["night"]), row["nights"])
        for row in now
    }
    return suspects, {row["method"] for row in found["changes"]}


def _write_confirmed(year: Year, done: Nights, workspace: Path) -> None:
    with open_store(parse_address(None, workspace)) as store:
        store.refresh()
        keys = {(one.key.method, one.key.hardware): one.key for one in store.series()}
    rows = [_told(year, question, night, keys) for question, night in done.confirmed]
    write_state(workspace, SuspectState(confirmed=tuple(rows)))


def _told(
    year: Year, question: Question, night: int, keys: Mapping[tuple[str, str], Any]
) -> SuspectSeries:
    name, processor = method(year.owners[question.part]), _processor(year, question.part)
    key = next(key for (of, on), key in keys.items() if of == name and processor in on)
    names = (key.method, key.metric, key.environment, key.hardware, key.driver, key.source)
    return SuspectSeries(
        series=(*names, key.settings),
        direction="worse" if question.shift > 0 else "better",
        first_day=_ordinal(question.first),
        before_day=_ordinal(question.before),
        after_day=_ordinal(question.after),
        before_summary="",
        after_summary="",
        before_execution_id="",
        after_execution_id="",
        shift=question.shift,
        noise=question.noise,
        odds=question.odds,
        seen_day=_ordinal(question.seen),
        alpha=question.alpha,
        pairs=tuple(question.pairs),
        told_day=_ordinal(night),
        told_in=f"night-{night:03}",
    )


def _ordinal(night: int) -> int:
    return FIRST.date().toordinal() + night


def agreement_lines(found: Agreement) -> list[str]:
    """Return the result as lines."""
    return [
        f"{found.nights} nights screened, {found.confirmed} changes confirmed",
        f"suspects that both list: {found.alike}",
        f"left out, as the history alone had found a change there: {found.left_out}",
        f"only in memory: {len(found.only_in_memory)}",
        *(f"  {text}" for text in found.only_in_memory),
        f"only by the command: {len(found.only_on_disk)}",
        *(f"  {text}" for text in found.only_on_disk),
    ]
