"""`python tests/chaos FAMILY`: make faults in runs of perfrun, and check that nothing is lost.

Families: `syscalls` (each system call of a run fails), `states` (what a disk may hold after a power
loss), `kills` (random kills, full disks, clocks that jump, locks that are held), `services`
(containers, an engine, PostgreSQL, servers), `accidents` (the last two). A fault has a name;
`--only=NAME` makes it again.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from families import FAMILIES, kinds_of, left_out, make_family
from subject import preload


def main(argv: Sequence[str] | None = None) -> int:
    """Make the faults; the exit status is 1 when one of them lost something."""
    parser = argparse.ArgumentParser(prog="tests/chaos", description=__doc__)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--sample", type=int, help="so many faults, drawn at random; else all")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--scenario", help="only faults whose names begin so (with a comma: or so)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="the name of one fault")
    parser.add_argument("--minutes", type=float, help="begin no further fault after so long")
    flags = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    place = Path(tempfile.mkdtemp(prefix="perfrun-chaos-"))
    try:
        if not _tools_are_there(flags):
            return 2
        preload()
        names = [flags.only] if flags.only else _names(flags, place)
        _say(f"{flags.family}: {len(names)} faults, seed {flags.seed}, {flags.jobs} jobs")
        group_of = make_family(flags.family, place / "report").group_of
        return _report(_results(flags, names, place), group_of)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _tools_are_there(flags: argparse.Namespace) -> bool:
    """Name the kinds that cannot be made here; False when one of them has to be."""
    kinds = [kind for kind in kinds_of(flags.family) if kind.startswith(_wanted(flags))]
    reasons = {kind: why for kind in kinds if (why := left_out(kind))}
    for kind, why in reasons.items():
        _say(f"{kind}: left out, there is no {why}")
    required = {"engine": "PERFRUN_REQUIRE_DOCKER", "database": "PERFRUN_REQUIRE_POSTGRES"}
    return not [k for k in reasons if os.environ.get(required.get(k, "")) == "1"]


def _wanted(flags: argparse.Namespace) -> tuple[str, ...]:
    """How the names of the faults begin that are asked for."""
    kind = flags.only.partition("/")[0] if flags.only else None
    return tuple((kind or flags.scenario or "").split(","))


def _names(flags: argparse.Namespace, place: Path) -> list[str]:
    """Return the faults to make. A sample has as many kinds as there is room for."""
    maker = make_family(flags.family, place / "count")
    # Of those that are drawn, enough are of the kinds that are wanted.
    drawn = (flags.sample or 0) * (len(kinds_of(flags.family)) if flags.scenario else 1)
    names = [n for n in maker.names(flags.seed, drawn or None) if n.startswith(_wanted(flags))]
    random.Random(flags.seed).shuffle(names)
    if flags.sample is None:
        return names
    seen = Counter[str]()
    turns = []
    for name in names:
        seen[maker.kind_of(name)] += 1
        turns.append((seen[maker.kind_of(name)], name))
    return [name for _, name in sorted(turns, key=lambda turn: turn[0])][: flags.sample]


def _results(flags: argparse.Namespace, names: list[str], place: Path) -> Any:
    """Yield name, whether the run came to the fault, and the problems, as they are known."""
    context = multiprocessing.get_context("fork")
    results: Any = context.SimpleQueue()
    end = time.monotonic() + 60 * flags.minutes if flags.minutes else None
    jobs = [
        context.Process(
            target=_work,
            daemon=True,  # it ends with this process
            args=(flags.family, place / str(job), names[job :: flags.jobs], end, results),
        )
        for job in range(flags.jobs)
    ]
    for job in jobs:
        job.start()
    ended = 0
    while ended < len(jobs):
        result = results.get()
        if result is None:
            ended += 1
        else:
            yield result
    for job in jobs:
        job.join()


def _work(family: str, place: Path, names: list[str], end: float | None, results: Any) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what it has started ends with it
    maker = make_family(family, place)
    try:
        for name in names:
            if end is not None and time.monotonic() > end:
                break
            try:
                met, problems = maker.make(name)
            except Exception as error:
                met, problems = True, [f"the test failed: {type(error).__name__}: {error}"]
            results.put((name, met, problems))
    finally:
        try:
            maker.close()
        finally:
            results.put(None)


def _report(results: Any, group_of: Callable[[str], str]) -> int:
    begun, met, bad = time.monotonic(), Counter[str](), Counter[str]()
    tried = 0
    with contextlib.suppress(KeyboardInterrupt):  # what was tried so far counts
        for name, was_met, problems in results:
            tried += 1
            group = group_of(name)
            met[group] += was_met
            bad[group] += bool(problems)
            if problems:
                _say("\n    ".join([f"FAILED {name}", *problems]))
            if tried % 500 == 0:
                _say(f"{tried} tried, {bad.total()} failed")
    for group in sorted(met):
        _say(f"{group}: {met[group]} made, {bad[group]} failed")
    spent = time.monotonic() - begun
    _say(f"{tried} tried, {met.total()} made, {bad.total()} failed, {spent:.0f} s")
    return 1 if bad.total() else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
