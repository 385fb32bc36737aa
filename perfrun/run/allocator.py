"""`--allocator`: the variables that give a trial its allocator, and the proof that they work.

A throw-away worker looks for the library in the environment under test, image or interpreter; a
second one, with the variables, says which allocator it has got. What has no effect is refused
before anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfrun.errors import UsageError
from perfrun.launchers.launcher import Launcher
from perfrun.options.plan import RunPlan
from perfrun.run.environment import Paths, Service
from perfrun.summary.series_identity import is_number, section, text
from perfrun.untrusted import Refused, parse_json

PRELOAD = "LD_PRELOAD"
# glibc gives memory back in three ways: blocks of their own by munmap, the top of the heap when it
# grows large, and whole heaps of threads. Only the first two have limits of their own; with a
# single heap there is no third.
RETAIN = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
PACKAGES = {
    "jemalloc": "libjemalloc2 (Debian, Ubuntu), jemalloc (Fedora, Alpine, conda-forge)",
    "tcmalloc": "libtcmalloc-minimal4 (Debian), gperftools (Fedora, Alpine, conda-forge)",
}
_KEPT_SHARE = 0.05  # of the probe's pages: fewer are faulted in again where memory is kept


def provide_allocator(launcher: Launcher, plan: RunPlan) -> None:
    """Give the workers that are started from now on the allocator asked for. Raises UsageError."""
    asked = plan.allocator
    if asked == "default":
        return
    variables = _variables(_ask(launcher, asked, probe=False), plan, launcher.name)
    launcher.set_variables(variables)
    _check_effect(_ask(launcher, asked, probe=asked == "retain"), asked, launcher.name)


def _ask(launcher: Launcher, name: str, *, probe: bool) -> Mapping[str, Any]:
    order = {"action": "allocator", "name": name, "probe": probe}
    with Service(launcher, order, Paths()) as service:
        answer = service.answer()
        why = "" if answer else service.end()
    try:
        found = parse_json(answer)
    except Refused:
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            f"--allocator={name}: {launcher.name} does not start: {why or 'no answer'}"
        )
    return found


def _variables(answer: Mapping[str, Any], plan: RunPlan, place: str) -> dict[str, str]:
    """Return the variables to add. Those of `--env` stay; LD_PRELOAD gets one library more."""
    asked, own = plan.allocator, dict(plan.env)
    in_use = section(answer, "in_use")
    if asked == "retain":
        if text(in_use.get("name")) != "glibc":
            raise UsageError(f"--allocator=retain: {_no_glibc(in_use, place)}")
        return {name: value for name, value in RETAIN.items() if name not in own}
    library = text(answer.get("found"))
    preload = text(answer.get("preload"))
    if text(in_use.get("name")) == asked:
        return {}
    if not library:
        raise UsageError(
            f"--allocator={asked}: there is no {asked} library where {place} runs; "
            f"install the package {PACKAGES[asked]} there"
        )
    if any(c in library for c in " :"):
        raise UsageError(f"--allocator={asked}: {library}: a path with ' ' or ':' cannot be loaded")
    return {PRELOAD: f"{library}:{preload}" if preload else library}


def _no_glibc(in_use: Mapping[str, Any], place: str) -> str:
    library, libc = text(in_use.get("library")), text(in_use.get("libc"))
    if library:
        return f"{place} has the allocator {library} (LD_PRELOAD), and only glibc's can be told so"
    return (
        f"{place} has {libc or 'another C library'}, and only glibc's allocator can be told so; "
        "--allocator=jemalloc or tcmalloc takes another one"
    )


def _check_effect(answer: Mapping[str, Any], asked: str, place: str) -> None:
    in_use = section(answer, "in_use")
    name = text(in_use.get("name"))
    if asked != "retain":
        if name != asked:
            raise UsageError(
                f"--allocator={asked}: has no effect: malloc is still {name or 'unknown'} where "
                f"{place} runs, in spite of LD_PRELOAD; is {place} a program that clears it?"
            )
        return
    faults, pages = answer.get("probe_faults"), _pages(answer)
    if not is_number(faults) or faults > _KEPT_SHARE * pages:
        raise UsageError(
            f"--allocator=retain: has no effect where {place} runs: freed memory was given back "
            f"({text(faults)} page faults for {pages:.0f} pages); does a variable of the "
            "environment (MALLOC_..., GLIBC_TUNABLES) say otherwise?"
        )


def _pages(answer: Mapping[str, Any]) -> float:
    size, page = answer.get("probe_bytes"), answer.get("page_bytes")
    return size / page if is_number(size) and is_number(page) and page > 0 else 0.0
