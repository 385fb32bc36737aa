"""The plan of every simulated night, drawn from the seed alone: commits, faults, damage, kills."""

from __future__ import annotations

import errno
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nights_world import DAY_S, Script

FIRST = datetime(2026, 1, 5, 1, 30)  # local time: many a night crosses the hour of summer time
METHODS = ("m0", "m1", "m2")
CANARY = "still"
IN_IMAGE = ("m0",)
TRIALS = 2
QUIET = 40  # nights until the first planted change: a history has to begin
EVERY = 24  # nights between two planted changes
SLOW_EVERY, SLOW_NIGHTS, SLOW = 170, 5, 1.06  # the machine's bad nights
ANSWERS = ("200", "200", "204")
BAD_ANSWERS = ("500", "503", "404", "302", "429", "cut", "garbage", "reset")
DAMAGES = (
    *("index removed", "index garbled", "summary garbled", "summary removed", "journal cut"),
    *("report garbled", "night garbled", "report removed"),
)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A change of level that a commit brings: the reference value of what the nights report."""

    number: int  # of the night with that commit
    method: str
    factor: float

    @property
    def direction(self) -> str:
        """The direction as a report says it."""
        return "worse" if self.factor > 1 else "better"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One call of `perfrun nightly`, and when it is made."""

    after_s: float  # since the night's time, or since the end of the call before
    script: Script
    answers: tuple[str, ...] = ANSWERS  # of the webhook's server, one after the other
    locked: bool = False  # another night goes on


@dataclass(frozen=True, kw_only=True)
class NightPlan:
    """All that happens from one night to the next."""

    number: int
    at: datetime
    levels: Mapping[str, float]
    planted: Planted | None
    slow: bool
    attempts: tuple[Attempt, ...]  # those after the first are made when the one before was cut off
    damage: str | None = None  # before the night
    new_suite: bool = False
    faults: tuple[str, ...] = field(default=())  # the names of all this, for the table


def plans(seed: int, nights: int, typical_events: int, typical_calls: int) -> list[NightPlan]:
    """Draw all nights."""
    levels = {name: 1.0 + 0.2 * place for place, name in enumerate((*METHODS, CANARY))}
    found = []
    day = 0
    for number in range(nights):
        draw = random.Random(f"{seed}/{number}")
        planted = None
        if number >= QUIET and (number - QUIET) % EVERY == 0:
            planted = _planted(draw, number, levels)
            levels = {**levels, planted.method: levels[planted.method] * planted.factor}
        night = _night(draw, seed, number, typical_events, typical_calls)
        day += 1 + (draw.choice((1, 2, 6)) if "no nights before" in night[1] else 0)
        at = FIRST + timedelta(days=day, minutes=draw.uniform(-40, 40))
        slow = number >= QUIET and number % SLOW_EVERY >= SLOW_EVERY - SLOW_NIGHTS
        attempts = tuple(_slowed(one) for one in night[0]) if slow else night[0]
        damage = draw.choice(DAMAGES) if number > 3 and draw.random() < 0.08 else None
        new_suite = draw.random() < 0.01
        faults = (*night[1], *((f"damage: {damage}",) if damage else ()))
        faults += ("the suite file is changed",) if new_suite else ()
        faults += ("the machine is slow",) if slow else ()
        found.append(
            NightPlan(
                number=number,
                at=at,
                levels=levels,
                planted=planted,
                slow=slow,
                attempts=attempts,
                damage=damage,
                new_suite=new_suite,
                faults=faults,
            )
        )
    return found


def _planted(draw: random.Random, number: int, levels: Mapping[str, float]) -> Planted:
    method = draw.choice(METHODS)
    size = draw.choice((0.05, 0.07, 0.10, 0.15, 0.30))
    up = draw.random() < (0.35 if levels[method] > 1.5 else 0.65)
    return Planted(number=number, method=method, factor=1 + size if up else 1 / (1 + size))


def _slowed(attempt: Attempt) -> Attempt:
    return replace(attempt, script=replace(attempt.script, slow=SLOW))


def _night(
    draw: random.Random, seed: int, number: int, events: int, calls: int
) -> tuple[tuple[Attempt, ...], tuple[str, ...]]:
    attempts, faults = [], []
    if number > 20 and draw.random() < 0.04:
        faults.append("no nights before")
    after_s = 0.0
    for turn in range(4):
        attempt, names, cut_off = _attempt(draw, f"{seed}/{number}/{turn}", after_s, events, calls)
        attempts.append(attempt)
        faults += names
        if not cut_off or draw.random() < 0.25:  # nobody starts it again before the next night
            break
        after_s = draw.choice((60.0, 600.0, 3600.0, 7 * 3600.0))
    return tuple(attempts), tuple(faults)


def _attempt(
    draw: random.Random, seed: str, after_s: float, events: int, calls: int
) -> tuple[Attempt, list[str], bool]:
    """Return a call, the names of its faults, and True where it may be cut off."""
    names: list[str] = []

    def happens(share: float, name: str) -> bool:
        if draw.random() < share:
            names.append(name)
            return True
        return False

    trials = TRIALS * (len(METHODS) + 1 + len(IN_IMAGE))
    script = Script(
        seed=seed,
        fates=draw.choice((0.1, 0.3, 1.0)) if happens(0.2, "trials fail") else 0.0,
        image_gone=happens(0.03, "the image is gone"),
        engine_gone=draw.choice((0, 1, 3, 5, 7)) if happens(0.03, "the engine is gone") else None,
        broken=draw.choice(("hangs", "dies", "garbage"))
        if happens(0.02, "a worker does not answer")
        else None,
        trial_s=4 * 3600.0 / trials * 2 if happens(0.03, "trials outlast the deadline") else 60.0,
    )
    if happens(0.10, "killed anywhere"):
        script = replace(script, kill_at=draw.randrange(1, max(2, events)))
    elif happens(0.03, "killed in a trial"):
        script = replace(script, kill_in_trial=draw.randrange(1, trials))
    elif happens(0.03, "SIGTERM in a trial"):
        script = replace(script, signal_in_trial=draw.randrange(1, trials))
    if happens(0.03, "the clock jumps"):
        leap = draw.choice((-DAY_S, DAY_S, -3600.0, 3600.0))
        script = replace(script, jump=(draw.randrange(1, trials), leap))
    once, ever = happens(0.06, "the disk fails once"), happens(0.03, "the disk fails for good")
    if once or ever:
        number = draw.choice((errno.EIO, errno.ENOSPC))
        script = replace(script, disk=(draw.randrange(1, max(2, calls)), number, ever))
    answers = ANSWERS
    if happens(0.15, "the webhook fails"):
        answers = tuple(draw.choice(BAD_ANSWERS) for _ in range(draw.randrange(1, 4))) + ANSWERS
    locked = happens(0.01, "another night goes on")
    cuts = (script.kill_at, script.kill_in_trial, script.signal_in_trial)
    attempt = Attempt(after_s=after_s, script=script, answers=answers, locked=locked)
    return attempt, names, any(cut is not None for cut in cuts)
