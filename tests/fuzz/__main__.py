"""Fuzz the parsers for as many inputs as asked for.

    python -m tests.fuzz --inputs=1000000
    python -m tests.fuzz --target=summary --seed=7 --inputs=10000

Inputs are changes of known good ones, from a seed that is printed. With `--atheris`, the inputs of
one target are found by coverage instead (`pip install atheris`). The exit status is 1 when a parser
raised what it does not name, or took longer than a second; the input is printed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .mutation import mutated
from .runner import FuzzError, check
from .target import Target, in_memory

KINDS_SHOWN = 5  # of failures of one target
# Inputs of one process: the Markdown parser of the tests keeps 30 KiB of each page for good.
PORTION = 50_000


@dataclass(frozen=True, kw_only=True)
class Portion:
    """What a process found: failures by the place in the code that raised, each with an input."""

    inputs: int
    accepted: int
    cpu_s: float
    failures: dict[str, str]


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz; print a line for each target; return the exit status."""
    options = _parser().parse_args(argv)
    if options.atheris:
        return _atheris(options.target, options.inputs)
    from .targets import TARGETS

    chosen = _chosen(TARGETS, options.target)
    if not chosen:
        return 2
    tasks = [
        (TARGETS.index(target), begin, min(PORTION, options.inputs - begin), options.seed)
        for target in chosen
        for begin in range(0, options.inputs, PORTION)
    ]
    failures = 0
    # The processes of a pool are ended without a chance to remove their files.
    with (
        tempfile.TemporaryDirectory(prefix="perfrun-fuzz-", dir=in_memory()) as place,
        multiprocessing.Pool(options.jobs, _begin, (place,), maxtasksperchild=1) as pool,
    ):
        portions = pool.imap(_fuzz, tasks, chunksize=1)
        for target in chosen:
            own = [next(portions) for _ in range(0, options.inputs, PORTION)]
            found = {kind: text for one in own for kind, text in one.failures.items()}
            failures += len(found)
            sys.stdout.write(_told(target.name, own, found, options.seed) + "\n")
            sys.stdout.flush()
    return 1 if failures else 0


def _told(name: str, own: Sequence[Portion], found: Mapping[str, str], seed: int) -> str:
    inputs, accepted = sum(one.inputs for one in own), sum(one.accepted for one in own)
    took_s = sum(one.cpu_s for one in own)
    what = f"{name}: {inputs:,} inputs, {accepted:,} accepted, {len(found)} kinds of failure"
    lines = [
        f"{what}, {took_s:.0f} s of the processor, seed {seed}",
        *(f"  {kind}\n    {text}" for kind, text in list(found.items())[:KINDS_SHOWN]),
    ]
    return "\n".join(lines)


def _chosen(targets: Sequence[Target], name: str | None) -> list[Target]:
    """Return the targets of that name, or all; an empty list after a line that says why."""
    chosen = [target for target in targets if name in (None, target.name)]
    if not chosen:
        names = ", ".join(target.name for target in targets)
        sys.stderr.write(f"--target={name}: must be one of {names}\n")
    return chosen


def _begin(place: str) -> None:
    from perfrun import shown

    tempfile.tempdir = place
    # A writer cleans the same text in forty places; what depends on nothing else is computed once.
    for name in ("redact", "visible"):
        setattr(shown, name, lru_cache(maxsize=256)(getattr(shown, name)))


def _fuzz(task: tuple[int, int, int, int]) -> Portion:
    """Give a target the inputs of a portion: those from `begin` on, of its own random numbers."""
    from .targets import TARGETS

    number, begin, inputs, seed = task
    target = TARGETS[number]
    chance = random.Random(f"{target.name} {seed}{f' {begin}' if begin else ''}")
    accepted, found = 0, dict[str, str]()
    began = time.process_time()
    for _ in range(inputs):
        try:
            accepted += check(target, mutated(target.seeds, chance))
        except FuzzError as error:
            kind = f"{type(error.__cause__).__name__} {_place(error)}"
            found.setdefault(kind, str(error)[:2000])
    took_s = time.process_time() - began
    return Portion(inputs=inputs, accepted=accepted, cpu_s=took_s, failures=found)


def _place(error: FuzzError) -> str:
    last = error.__cause__.__traceback__ if error.__cause__ else None
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}" if last else "?"


def _atheris(name: str | None, inputs: int) -> int:
    try:
        import atheris
    except ImportError:
        sys.stderr.write("--atheris: needs the package atheris (pip install atheris)\n")
        return 2
    # The coverage of perfrun's own code: that of all of Python's takes minutes to prepare.
    with atheris.instrument_imports(include=["perfrun"]):
        from .targets import TARGETS
    chosen = _chosen(TARGETS, name)
    if not chosen:
        return 2

    def one_input(data: bytes) -> None:
        check(chosen[0], data)

    corpus = Path(tempfile.mkdtemp(prefix="perfrun-fuzz-"))  # stays: what was found is in it
    for number, seed in enumerate(chosen[0].seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    sys.stderr.write(f"inputs are kept in {corpus}\n")
    atheris.Setup([sys.argv[0], f"-atheris_runs={inputs}", str(corpus)], one_input)
    atheris.Fuzz()  # ends the process
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", help="one target (default: all)")
    parser.add_argument("--inputs", type=int, default=100_000, help="of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=None, help="processes (default: one a CPU)")
    parser.add_argument("--atheris", action="store_true", help="inputs by coverage; one target")
    return parser


if __name__ == "__main__":
    sys.exit(main())
