"""Run the checks one after the other: each has its limit, and one that fails stops no other."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_day.asking import FRAMEWORKS, ROOT, Asking, Unanswered, ask_driver, ask_framework
from gpu_day.checks import Check
from gpu_day.judging import ABSENT, Verdict, judged

_LEAST_S = 5.0  # a check is not begun with less
_FACTS_LIMIT_S = 40.0
_REHEARSAL_FACTOR = 4  # the limits are those of a device
LIVE, REHEARSED, RECORDED = "live", "rehearsed on the CPU", "recorded"


class NoDeviceError(Exception):
    """There is no GPU here; the text is the reason, in one line."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A check with its answer and verdict."""

    check: Check
    origin: str  # where the answer comes from
    answer: Mapping[str, Any]
    verdict: Verdict
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What was asked for on the command line."""

    folder: Path
    seconds: float
    image: str | None = None
    carried: Path | None = None  # folder of wheels that were unpacked
    rehearse: bool = False
    pythons: Sequence[str] = field(default_factory=tuple)  # where frameworks are looked for


def held(checks: Sequence[Check], settings: Settings, say: Callable[[str], None]) -> list[Result]:
    """Ask and judge. Raises NoDeviceError where there is nothing to ask."""
    ends_s = time.monotonic() + settings.seconds
    variables = _variables(settings)
    if not settings.rehearse:
        try:
            ask_driver()
        except Unanswered as error:
            raise NoDeviceError(str(error)) from None
    say("looking for frameworks ...")
    wanted = {check.needs for check in checks} & set(FRAMEWORKS)
    if not settings.rehearse:
        wanted = set(FRAMEWORKS)
    pythons, facts = _frameworks(sorted(wanted), settings, variables, ends_s)
    results = []
    for check in checks:
        say(f"{check.name} ...")
        begun_s = time.monotonic()
        slower = _REHEARSAL_FACTOR if settings.rehearse else 1
        limit_s = min(check.limit_s * slower, ends_s - begun_s)
        asking = Asking(
            pythons=pythons,
            facts=facts,
            folder=settings.folder,
            device="cpu" if settings.rehearse else "cuda",
            image=settings.image,
            ends_s=begun_s + limit_s,
            variables=variables,
        )
        answer = _asked(check, asking, settings, limit_s)
        verdict = judged(check.judge, answer, rehearsed=settings.rehearse)
        result = Result(
            check=check,
            origin=REHEARSED if settings.rehearse else LIVE,
            answer=answer,
            verdict=verdict,
            seconds=time.monotonic() - begun_s,
        )
        results.append(result)
        say(f"  {verdict.verdict}: {verdict.reason or verdict.measured}")
    return results


def without_device(checks: Sequence[Check], why: str) -> list[Result]:
    """Return the results of a machine on which there is nothing to ask."""
    absent = Verdict(verdict=ABSENT, measured="-", reason=why)
    return [
        Result(check=check, origin=LIVE, answer={"absent": why}, verdict=absent) for check in checks
    ]


def _asked(check: Check, asking: Asking, settings: Settings, limit_s: float) -> dict[str, Any]:
    """Return the answer, or the reason why there is none."""
    why = _why_not(check, asking, settings)
    if why:
        return {"absent": why}
    if limit_s < _LEAST_S:
        return {"absent": f"no time left of the {settings.seconds / 60:g} minutes"}
    try:
        return check.ask(asking)
    except Unanswered as error:
        return {"failed": str(error)}
    except Exception as error:  # one check that breaks must not stop the others
        return {"failed": f"{type(error).__name__}: {error}"}


def _why_not(check: Check, asking: Asking, settings: Settings) -> str | None:
    if settings.rehearse and not check.rehearsed:
        return "it has no rehearsal on the CPU"
    if check.needs == "engine":
        if shutil.which("docker") is None:
            return "no container engine here: there is no command `docker`"
        return None if asking.image else "no image was named with --image"
    if check.needs not in FRAMEWORKS:
        return None
    if check.needs not in asking.pythons:
        return f"no interpreter here has {check.needs}: looked in {', '.join(settings.pythons)}"
    found = asking.facts[check.needs]
    if not settings.rehearse and not found.get("devices"):
        return (
            f"{check.needs} {found.get('version')} sees no device; it is built for "
            f"{found.get('built_for') or 'the CPU'}"
        )
    return None


def _variables(settings: Settings) -> dict[str, str]:
    """Return what is set for all that is started: nothing may wait for a network."""
    found = {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    if settings.carried is not None:
        paths = [str(settings.carried), os.environ.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return found


def _frameworks(
    wanted: Sequence[str], settings: Settings, variables: Mapping[str, str], ends_s: float
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return for each framework the first interpreter in which it sees a device, or else has it."""
    pythons: dict[str, str] = {}
    facts: dict[str, Any] = {}
    for name in wanted:
        for python in settings.pythons:
            limit_s = min(_FACTS_LIMIT_S, ends_s - time.monotonic())
            if limit_s <= 0:
                break
            found = ask_framework(python, name, limit_s, {**os.environ, **variables})
            if found is None:
                continue
            if name not in pythons or found.get("devices"):
                pythons[name], facts[name] = python, found
            if found.get("devices"):
                break
    return pythons, facts


def default_pythons() -> tuple[str, ...]:
    """Return the interpreters that may have a framework: the checkout's, then this machine's."""
    own = [str(ROOT / ".envs" / name / "bin" / "python") for name in FRAMEWORKS]
    named = [os.environ.get("PERFRUN_PYTHON"), shutil.which("python3"), sys.executable]
    found = [*(path for path in own if Path(path).exists()), *filter(None, named)]
    return tuple(dict.fromkeys(found))


def replayed(checks: Sequence[Check], path: Path) -> list[Result]:
    """Judge the answers in an earlier report. Raises ValueError for what is none."""
    known = dict(_recorded(path))
    results = []
    for check in checks:
        answer, origin = known.get(check.name, (None, None))
        results.append(
            Result(
                check=check,
                origin=f"{RECORDED}: {origin or path.name}",
                answer=answer or {},
                verdict=judged(check.judge, answer)
                if answer is not None
                else Verdict(verdict=ABSENT, measured="-", reason="there is no such record"),
            )
        )
    return results


def _recorded(path: Path) -> Iterator[tuple[str, tuple[dict[str, Any], str | None]]]:
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read as a report: {error}") from None
    checks = whole.get("checks") if isinstance(whole, dict) else None
    if not isinstance(checks, list):
        raise ValueError(f"{path}: is no report of a GPU day: it has no list `checks`")
    for one in checks:
        if isinstance(one, dict) and isinstance(one.get("answer"), dict):
            origin = one.get("origin")
            yield str(one.get("name")), (one["answer"], origin if isinstance(origin, str) else None)
