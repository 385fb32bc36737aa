"""`python -m gpu_day`: run all that needs a GPU, in minutes and without a network; one report.

Exit status: 0 all that could be checked passed, 1 a check failed, 2 wrong usage, 4 nothing could be
checked here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpu_day import report
from gpu_day.carry import CarryError, carry, unpack
from gpu_day.checks import CHECKS
from gpu_day.day import (
    NoDeviceError,
    Settings,
    default_pythons,
    held,
    replayed,
    without_device,
)
from gpu_day.judging import ABSENT, FAILED

NO_DEVICE = 4
MINUTES = 8.0
_RESERVE_S = 15.0  # for the report, and for what a check that is ended takes to end
_NAMES = tuple(check.name for check in CHECKS)


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out the command and return its exit status."""
    given = _parser().parse_args(argv)
    if given.list:
        sys.stdout.write("".join(f"{c.name:<16} {c.expectation}\n" for c in CHECKS))
        return 0
    try:
        if given.carry:
            _say(carry(given.carry, given.package, given.python_version, given.most_mib))
            return 0
        return _day(given)
    except (CarryError, ValueError, OSError) as error:
        _say(f"gpu_day: {error}")
        return 2


def _day(given: argparse.Namespace) -> int:
    begun_s = time.monotonic()
    checks = [check for check in CHECKS if not given.only or check.name in given.only]
    folder = Path(given.output).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if given.replay:
        results = replayed(checks, Path(given.replay))
    else:
        wheels = Path(given.carried)
        carried = unpack(wheels, folder) if wheels.is_dir() else None
        if carried is not None:
            sys.path.append(str(carried))
        settings = Settings(
            folder=folder,
            seconds=given.minutes * 60 - _RESERVE_S,
            image=given.image,
            carried=carried,
            rehearse=given.rehearse,
            pythons=tuple(given.python or default_pythons()),
        )
        try:
            results = held(checks, settings, _say)
        except NoDeviceError as error:
            results = without_device(checks, str(error))
            for result in results:
                _say(f"{result.check.name}: absent: {error}")
    whole = report.document(results, time.monotonic() - begun_s)
    paths = report.write(whole, folder)
    found = whole["counts"]
    if results and all(result.verdict.verdict == ABSENT for result in results):
        _say(f"nothing could be checked here (exit status {NO_DEVICE}): {paths[0]}, {paths[1]}")
        return NO_DEVICE
    sys.stdout.write(report.markdown(whole))
    _say(f"{', '.join(f'{count} {name}' for name, count in found.items())}: {paths[0]}, {paths[1]}")
    return 1 if found[FAILED] else 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m gpu_day", description=__doc__)
    made.add_argument("--list", action="store_true", help="print the checks and end")
    made.add_argument("--only", nargs="+", choices=_NAMES, metavar="CHECK", help="these checks")
    made.add_argument("--minutes", type=_minutes, default=MINUTES, help="for all (default 8)")
    made.add_argument("--output", default="gpu_day_report", help="folder of the report")
    made.add_argument(
        "--python", action="append", metavar="FILE", help="interpreter with a framework; repeatable"
    )
    made.add_argument("--image", metavar="NAME", help="image for the check of --gpus")
    made.add_argument("--rehearse", action="store_true", help="on the CPU, at a small size")
    made.add_argument("--replay", metavar="FILE", help="judge the answers of a gpu_day.json again")
    made.add_argument("--carried", default="gpu_carry", metavar="DIR", help="wheels to install")
    made.add_argument("--carry", metavar="DIR", help="download wheels into DIR, and end")
    made.add_argument("--package", action="append", metavar="SPEC", help="with --carry; repeatable")
    made.add_argument("--python_version", default="3.12", help="with --carry: of the GPU machine")
    made.add_argument("--most_mib", type=float, default=64.0, help="with --carry: of all wheels")
    return made


def _minutes(text: str) -> float:
    value = float(text)
    if not 0.5 <= value <= 24 * 60:
        raise argparse.ArgumentTypeError("must be from 0.5 to 1440")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
