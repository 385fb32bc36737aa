"""The extra trials of `--profile`: one for each method and profiler, after the trials that count.

A profile trial's folder is `<trial>/profiles/<kind>/`, inside that of a trial that counts. Its
summary has another name, so that no reader of results finds it. The summary of the trial that
counts links the recorded files. Nothing here changes the exit status of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.run.digest import sha256_of
from perfrun.run.environment import Method
from perfrun.run.journal import LARGEST_BYTES, Journal, Key, UnfinishedRun
from perfrun.run.progress import Screen
from perfrun.run.trial import Surroundings, TrialSpec, run_trial
from perfrun.summary.assemble import RunFacts
from perfrun.summary.document import Order, Status, TrialResult, to_json
from perfrun.summary.result_folder import PROFILE_SUMMARY, ResultFolder
from perfrun.untrusted import parse_json

FOLDER = "profiles"


@dataclass(frozen=True, kw_only=True)
class Profiles:
    """Results of the profile trials."""

    results: Mapping[Key, TrialResult]  # of the trials that count, with links to the profiles
    profiles: tuple[TrialResult, ...]
    ended: bool  # False when the run was interrupted


def run_profiles(
    facts: RunFacts,
    methods: Mapping[str, Method],
    results: Mapping[Key, TrialResult],
    around: Surroundings,
    screen: Screen,
    journal: Journal,
    resumed: UnfinishedRun | None,
) -> Profiles:
    """Profile every method of which a trial ran. A resumed run keeps the profiles that it has."""
    linked, profiles, ended = dict(results), list[TrialResult](), True
    for name, method in methods.items():
        keys = [key for key, result in results.items() if key[0] == name and result.status.ran]
        if not keys:
            screen.problem(
                f"--profile: no trial of {method.text} ran to its end; it is not profiled"
            )
            continue
        key = max(keys)
        for kind in facts.plan.profiles:
            written = partial(journal.written, key)
            found = _earlier(linked[key], kind, key, resumed)
            found = found or profile(facts, method, linked[key], kind, around, screen, written)
            if found is None:
                continue
            profiles.append(found)
            rewritten = partial(journal.rewritten, key)
            linked[key] = _linked(linked[key], found, screen, rewritten)
            ended = found.status is not Status.INTERRUPTED and not around.interruption.asked
            if not ended:
                return Profiles(results=linked, profiles=tuple(profiles), ended=False)
    return Profiles(results=linked, profiles=tuple(profiles), ended=ended)


def profile(
    facts: RunFacts,
    method: Method,
    counted: TrialResult,
    kind: str,
    around: Surroundings,
    screen: Screen,
    written: Callable[[str], None],
    *,
    all_rows: bool = False,
) -> TrialResult | None:
    """Run one profile trial; None when its folder cannot be made.

    With `all_rows` the profiler's rows are in a file beside its own, and not only the largest.
    """
    place = Path(counted.summary).parent / FOLDER
    try:
        folder = _new_folder(place, kind)
    except OSError as error:
        screen.problem(f"--profile={kind}: {place} cannot be written: {error.strerror or error}")
        return None
    screen.profile_started(method.text, kind)
    order = Order(position=1, round=1, profile=kind)
    spec = TrialSpec(
        method=method,
        trial_id=counted.trial_id,
        folder=folder,
        order=order,
        announce=written,
        all_rows=all_rows,
    )
    result = run_trial(facts, spec, around)
    screen.profile_finished(result)
    return result


def _new_folder(place: Path, kind: str) -> ResultFolder:
    """Make a profile trial's folder; the trial that counts may have put anything there."""
    with _profiles_of(place).made() as folder:
        names = (kind if number == 1 else f"{kind}-{number}" for number in range(1, 1000))
        name = next(name for name in names if folder.make(name))
    made = ResultFolder(place / name, depth=3)
    with made.held() as folder:
        folder.make(made.private.name)
    return made


def _profiles_of(place: Path) -> ResultFolder:
    return ResultFolder(place, depth=2)


def _earlier(
    counted: TrialResult, kind: str, key: Key, resumed: UnfinishedRun | None
) -> TrialResult | None:
    """Return the profile trial that the run had finished before it was interrupted, if any.

    It lies in the folder of the trial that counts, where that trial may have put one of its own.
    """
    if resumed is None:
        return None
    place = Path(counted.summary).parent / FOLDER
    try:
        with _profiles_of(place).held() as folder:
            names = folder.names(kind)
    except OSError:
        return None
    for name in names:
        found = ResultFolder(place / name, depth=3)
        try:
            with found.held() as folder:
                content = folder.read(PROFILE_SUMMARY, LARGEST_BYTES)
            if not resumed.knows(key, sha256_of(content)):
                continue
            document = parse_json(content)
            status = Status(document["perfrun"]["outcome"]["status"])
            _check_profiles(document["perfrun"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if status is not Status.INTERRUPTED:
            summary = str(found.path / PROFILE_SUMMARY)
            return replace(counted, status=status, summary=summary, document=document)
    return None


def _check_profiles(own: Mapping[str, Any]) -> None:
    """Refuse what no profile trial has written: what is linked has a certain shape."""
    profiles, kind, reason = own["profiles"], own["order"]["profile"], own["outcome"]["reason"]
    if not isinstance(profiles, list) or not isinstance(kind, str):
        raise TypeError("no list of profiles")
    if reason is not None and not isinstance(reason, str):
        raise TypeError("the reason is no text")
    for one in profiles:
        files = one["files"] if isinstance(one, dict) else None
        if not isinstance(files, list):
            raise TypeError("no list of files")
        if not all(isinstance(file, dict) and _is_below(file["path"]) for file in files):
            raise TypeError("no file")


def _is_below(path: object) -> bool:
    return isinstance(path, str) and not path.startswith("/") and ".." not in path.split("/")


def _linked(
    counted: TrialResult, profile: TrialResult, screen: Screen, rewritten: Callable[[str], None]
) -> TrialResult:
    """Add links to the profile to the summary of the trial that counts."""
    path = Path(counted.summary)
    folder = Path(profile.summary).parent.relative_to(path.parent).as_posix()
    own = counted.document["perfrun"]
    others = [one for one in own["profiles"] if (one.get("trial") or {}).get("folder") != folder]
    links = [_link(recorded, profile, folder) for recorded in recorded_in(profile)]
    document = {**counted.document, "perfrun": {**own, "profiles": [*others, *links]}}
    text = to_json(document)
    rewritten(text)
    try:
        ResultFolder(path.parent).write(path.name, text)
    except OSError as error:
        screen.problem(f"{path}: the profile could not be noted: {error.strerror or error}")
        return counted
    return replace(counted, document=document)


def recorded_in(profile: TrialResult) -> list[Mapping[str, Any]]:
    """Return the profiles of a profile trial; if it has none, one entry that says why."""
    own = profile.document["perfrun"]
    found: list[Mapping[str, Any]] = own["profiles"]
    if found:
        return found
    nothing: dict[str, Any] = dict.fromkeys(("tool", "version", "scope"))
    nothing.update(windows=[], top=[], files=[], notes=[], error=own["outcome"]["reason"])
    return [{"kind": own["order"]["profile"], **nothing}]


def _link(recorded: Mapping[str, Any], profile: TrialResult, folder: str) -> dict[str, Any]:
    files = [{**one, "path": f"{folder}/{one['path']}"} for one in recorded["files"]]
    outcome = profile.document["perfrun"]["outcome"]
    trial = {"folder": folder, "status": profile.status.value, "reason": outcome["reason"]}
    return {**recorded, "files": files, "trial": trial}
