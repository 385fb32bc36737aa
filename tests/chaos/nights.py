"""`python tests/chaos/nights.py`: a thousand nights of `perfrun nightly`, in a few minutes.

Each night is the real command in a process of its own, a fork of this one. Only the clock, the
starting of trials and the disk's errors are made up, from a seed: the same seed makes the same
nights again. After each night the workspace is checked against what happened in it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import nights_checks as checks
from nights_plan import TRIALS, Attempt, NightPlan, plans
from nights_site import (
    KEPT_NIGHTS,
    PATIENCE_S,
    PRELOADED,
    Ended,
    Site,
    read_facts,
    share_compiled_statements,
)


class Simulation:
    """The nights of one seed, one after the other, each checked."""

    def __init__(self, site: Site, seed: int, nights: int) -> None:
        self.site, self.seed = site, seed
        self.plans = plans(seed, nights, TYPICAL_EVENTS, TYPICAL_CALLS)
        self.summaries = checks.Summaries(site.workspace / "output")
        self.verdicts = checks.Verdicts()
        self.made: Counter[str] = Counter()  # faults that came about, by name
        self.bad: Counter[str] = Counter()  # the same with something wrong after it
        self.trials = self.calls = self.nights = self.failed = 0
        self._deliveries: Counter[str] = Counter()
        self._damaged: set[Path] = set()
        self._pending: str | None = None  # a night that was cut off
        self._unsure: set[str] = set()  # nights that were cut off while the webhook was called

    def run(self) -> Iterator[tuple[NightPlan, list[str]]]:
        """Carry out the nights; yield each with what is wrong after it."""
        for plan in self.plans:
            problems = list(self._night(plan))
            names = list(dict.fromkeys(plan.faults or ("no fault",)))
            self.nights += 1
            self.made.update(names)
            if problems:
                self.failed += 1
                self.bad.update(names)
            yield plan, problems

    def _night(self, plan: NightPlan) -> Iterator[str]:
        site = self.site
        site.commit(plan)
        day = (plan.at - timedelta(hours=12)).date()
        if plan.planted:
            self.verdicts.plant(plan.planted, day)
        if plan.slow:
            self.verdicts.slow_days.add(day)
        if plan.new_suite:
            site.write_suite(f"suite of night {plan.number}")
        if plan.damage:
            self._damage(plan)
        now = plan.at.timestamp()
        for attempt in plan.attempts:
            now += attempt.after_s
            ended = site.call(attempt, now)
            self.calls += 1
            now = ended.now
            yield from self._checked(plan, attempt, ended)
            if not ended.killed and ended.code != 130:
                break

    def _checked(self, plan: NightPlan, attempt: Attempt, ended: Ended) -> Iterator[str]:
        """Check what a call has left; yield what is wrong."""
        self.trials += sum(line["event"] == "begun" for line in ended.trials)
        gone = self.summaries.look()
        night = _night_in(ended.out)
        found = checks.report_of(self.site.workspace / "nights" / night) if night else None
        if ended.hung:
            yield f"it did not end in {PATIENCE_S:g} s"
            return
        yield from self._webhook(ended)
        yield from checks.pruned(gone, self.summaries, found, KEPT_NIGHTS)
        if attempt.locked:
            if ended.code != 2 or "another night goes on" not in ended.err:
                yield f"beside another night: exit status {ended.code}: {ended.err[-300:]}"
            return
        if ended.killed or ended.code not in (0, 1):
            self._pending = _unended(self.site.workspace)
        if ended.killed:
            return
        disk_failed = ended.disk_hits > 0
        signalled = attempt.script.signal_in_trial is not None
        said = (ended.code, ended.out, ended.err)
        yield from checks.ending(*said, may_be_2=disk_failed, signalled=signalled)
        yield from checks.trials(ended.trials, self.summaries, ended.err, disk_failed=disk_failed)
        if ended.code in (2, 130):
            return
        yield from self._pending_is_told(ended)
        yield from checks.night_files(self.site.workspace / "nights", self._damaged)
        if found is not None and night is not None:
            yield from self._reported(plan, ended, night, found)
        elif not disk_failed or "could not be written" not in ended.err:
            yield f"no report, exit status {ended.code}, {ended.err[-500:]}"

    def _webhook(self, ended: Ended) -> Iterator[str]:
        for one in ended.delivered:
            self._deliveries[one] += 1
            if self._deliveries[one] > 1 and one not in self._unsure:
                yield f"the webhook got the report of {one} {self._deliveries[one]} times"
        if ended.killed:  # between the server's answer and the record of it
            known = {night["night"] for night in _nights(self.site.workspace) if night["delivered"]}
            self._unsure.update(set(ended.delivered) - known)

    def _reported(
        self, plan: NightPlan, ended: Ended, night: str, found: Mapping[str, Any]
    ) -> Iterator[str]:
        """Check a night that has a report."""
        disk_failed = ended.disk_hits > 0
        own = self.summaries.of(night)
        yield from checks.nothing_twice(own)
        if not disk_failed:
            yield from checks.report(found, ended.code, own, TRIALS)
            is_told = "did not take the report" in str(found["notes"]) + ended.err
            if night not in self._deliveries and not is_told:
                yield "the webhook did not get the report, and nobody says so"
        yield from self._index(plan, ended, disk_failed=disk_failed)
        yield from self.verdicts.night(found)

    def _pending_is_told(self, ended: Ended) -> Iterator[str]:
        """A night that was cut off goes on, or the next one names it."""
        pending, self._pending = self._pending, None
        known = {night["night"] for night in _nights(self.site.workspace)}
        if pending is None or pending not in known:  # its record was spoilt
            return
        told = ended.out + ended.err
        if f"going on with {pending}" not in told and f"{pending} did not come" not in told:
            yield f"{pending} was cut off, and the next night does not know: {told[:400]}"

    def _index(self, plan: NightPlan, ended: Ended, *, disk_failed: bool) -> Iterator[str]:
        path = self.site.workspace / "index.sqlite"
        if "the index could not be" in ended.out + ended.err or "nothing was pruned" in ended.err:
            if plan.damage != "index garbled" and not disk_failed and not self._is_spoilt:
                yield f"the index could not be used: {ended.err[-500:]}"
            elif not disk_failed:  # who reads the report does what it says: index anew
                for one in path.parent.glob("index.sqlite*"):
                    one.unlink()
                self._is_spoilt = False
            return
        fresh = self.site.folder if plan.faults or plan.number % 5 == 0 else None  # half its time
        yield from checks.index(
            self.site.workspace, self.summaries, refresh=disk_failed, fresh=fresh
        )

    _is_spoilt = False

    def _damage(self, plan: NightPlan) -> None:
        """Spoil a file of the workspace between two nights, as a disk or a person may."""
        draw = random.Random(f"damage {self.seed}/{plan.number}")
        kind = plan.damage
        workspace = self.site.workspace
        if kind == "index removed":
            for path in workspace.glob("index.sqlite*"):
                path.unlink()
        elif kind == "index garbled":
            path = workspace / "index.sqlite"
            if path.exists():
                size = path.stat().st_size
                with path.open("r+b") as file:
                    file.seek(draw.choice((0, size // 3, size // 2)))
                    file.write(draw.randbytes(5000))
                self._is_spoilt = True
        elif kind in ("summary garbled", "summary removed"):
            kept = sorted(self.summaries.all(), key=lambda one: one.path)
            if kept:
                path = draw.choice(kept).path
                if kind == "summary removed":
                    shutil.rmtree(path.parent)
                else:
                    path.write_bytes(path.read_bytes()[: draw.randrange(1, 3000)])
                self.summaries.forget(path)
        else:
            names = {
                "journal cut": "runs/*.jsonl",
                "report garbled": "nights/*/report.json",
                "report removed": "nights/*/report.json",
                "night garbled": "nights/*/night.json",
            }
            found = sorted(workspace.glob(names[str(kind)]))
            if found:
                path = draw.choice(found[-15:])
                self._damaged.add(path)
                if kind == "report removed":
                    path.unlink()
                else:
                    path.write_bytes(path.read_bytes()[: draw.randrange(1, 200)])


TYPICAL_EVENTS, TYPICAL_CALLS = 1_500_000, 900  # of a night; a kill beyond its end does nothing


def _night_in(out: str) -> str | None:
    found = re.search(r"Night `([^`]+)`", out)
    return found[1] if found else None


def _nights(workspace: Path) -> list[dict[str, Any]]:
    found = []
    for path in workspace.glob("nights/*/night.json"):
        with contextlib.suppress(OSError, ValueError):
            found.append(json.loads(path.read_text(encoding="utf-8")))
    return found


def _unended(workspace: Path) -> str | None:
    """Return the id of the night that was cut off."""
    open_ones = [night for night in _nights(workspace) if night["ended"] is None]
    return max(open_ones, key=lambda night: night["begun"], default={}).get("night")


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate nights; the exit status is 1 when something did not hold."""
    parser = argparse.ArgumentParser(prog="tests/chaos/nights.py", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--nights", type=int, default=1000)
    parser.add_argument("--keep", metavar="DIR", help="the folder to work in, which stays")
    parser.add_argument("--stop", action="store_true", help="stop at the first night that fails")
    parser.add_argument("--minutes", type=float, help="begin no further night after so long")
    flags = parser.parse_args(argv)
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets, in what is drawn and killed
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(
            sys.executable,
            [sys.executable, __file__, *(argv or sys.argv[1:]), f"--seed={flags.seed}"],
        )
    os.environ.update(TZ="Europe/Berlin", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    time.tzset()
    _say(f"{flags.nights} nights, seed {flags.seed}")
    for name in PRELOADED:
        importlib.import_module(name)
    share_compiled_statements()
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(flags.keep or tempfile.mkdtemp(prefix="perfrun-nights-", dir=base))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        site = Site(folder, read_facts(folder))
        gc.collect()
        gc.freeze()
        gc.disable()  # a night is short
        return _report(Simulation(site, flags.seed, flags.nights), flags)
    finally:
        if not flags.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _report(simulation: Simulation, flags: argparse.Namespace) -> int:
    """Carry out the nights and print what came of them; what was tried before Ctrl-C counts."""
    begun = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt):
        for plan, problems in simulation.run():
            if problems:
                names = ", ".join(plan.faults) or "no fault"
                head = f"FAILED night {plan.number} of seed {simulation.seed}: {names}"
                _say("\n    ".join([head, *problems]))
            if simulation.nights % 50 == 0:
                spent = time.monotonic() - begun
                _say(f"{simulation.nights} nights, {simulation.failed} failed, {spent:.0f} s")
            if problems and flags.stop:
                break
            if flags.minutes and time.monotonic() - begun > 60 * flags.minutes:
                break
    for name, count in sorted(simulation.made.items()):
        _say(f"{name}: {count} nights, {simulation.bad[name]} failed")
    rates = list(_verdicts(simulation.verdicts))
    for text in rates:
        _say(f"FAILED seed {simulation.seed}: {text}")
    _say(
        f"{simulation.nights} nights, {simulation.calls} calls, {simulation.trials} trials, "
        f"{simulation.failed + len(rates)} failed, {time.monotonic() - begun:.0f} s"
    )
    return 1 if simulation.failed or rates else 0


def _verdicts(verdicts: checks.Verdicts) -> Iterator[str]:
    """Print what was told of planted changes; yield what is more than it may be."""
    delays = sorted(verdicts.delays.values())
    median = delays[len(delays) // 2] if delays else None
    _say(
        f"{len(verdicts.planted)} changes planted, {verdicts.judged} judged, "
        f"{len(verdicts.missed())} missed, median {median} nights to the report; "
        f"{len(verdicts.false)} false, {len(verdicts.machine)} of the slow machine, "
        f"{verdicts.blamed} of them told as regressions"
    )
    for key, night in verdicts.false.items():
        _say(f"false: {' '.join(key)} in {night}")
    yield from verdicts.rates()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
