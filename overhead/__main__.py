"""`python -m overhead`: measure perfrun on this machine and print one table."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from overhead.checkouts import checkout_rows
from overhead.containment import containment_rows
from overhead.memory import memory_rows
from overhead.observation import observation_rows
from overhead.processes import MeasurementError, Pin, Settings, compile_modules
from overhead.store import store_rows
from overhead.table import Row, as_json, as_markdown, as_text
from overhead.trials import fault_rows, import_rows, noop_rows, tensorflow_rows

PARTS = {
    "tensorflow": tensorflow_rows,
    "noop": noop_rows,
    "imports": import_rows,
    "checkout": checkout_rows,
    "memory": memory_rows,
    "observation": observation_rows,
    "faults": fault_rows,
    "containment": containment_rows,
    "store": store_rows,
}
FORMATS = {"table": as_text, "markdown": as_markdown, "json": as_json}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the parts asked for; return the exit status. A goal that is missed is no failure."""
    arguments = _parser().parse_args(argv)
    begin, load = time.perf_counter(), os.getloadavg()[0]
    try:
        with tempfile.TemporaryDirectory(prefix="perfrun overhead ") as scratch:
            rows = _measured(arguments, Path(scratch))
    except (MeasurementError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"overhead: {error}\n")
        return 1
    facts = {**_machine(load), "seconds": round(time.perf_counter() - begin)}
    sys.stdout.write(FORMATS[arguments.format](rows, facts))
    return 0


def _measured(arguments: argparse.Namespace, scratch: Path) -> list[Row]:
    settings = Settings(
        scratch=scratch,
        rounds=arguments.rounds,
        tensorflow_python=arguments.tensorflow_python,
        pin=arguments.checkout_repo,
        image=arguments.image or None,
        summaries=arguments.summaries,
        postgresql=arguments.postgresql or None,
    )
    compile_modules()
    rows: list[Row] = []
    for name in arguments.only or PARTS:
        _say(f"measuring {name} ...")
        rows += PARTS[name](settings)
    return rows


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overhead", description=__doc__)
    parser.add_argument(
        "--tensorflow-python",
        type=_interpreter,
        metavar="PYTHON",
        help="interpreter that has TensorFlow; without it that row is skipped",
    )
    parser.add_argument(
        "--checkout-repo",
        type=_pin,
        metavar="PATH;HASH",
        help="repository and commit for the checkout rows (default: a made-up repository)",
    )
    parser.add_argument(
        "--image",
        default="perfrun/torch",
        metavar="NAME",
        help="image for the rows on containers (default: perfrun/torch); none there: skipped",
    )
    parser.add_argument("--rounds", type=_rounds, default=5, help="pairs a row (default: 5)")
    parser.add_argument(
        "--summaries",
        type=_rounds,
        default=20_000,
        metavar="N",
        help="how many for the rows on the index (default: 20000)",
    )
    parser.add_argument(
        "--postgresql",
        metavar="URL",
        help="address of an empty database; without it, the index's rows on a server are skipped",
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="repeatable")
    parser.add_argument("--format", choices=FORMATS, default="table")
    return parser


def _interpreter(text: str) -> str | None:
    if not text:
        return None
    if not os.access(text, os.X_OK):
        raise argparse.ArgumentTypeError(f"{text} is not an interpreter that can be run")
    return str(Path(text).absolute())  # not resolved: a virtual environment's link must stay


def _pin(text: str) -> Pin | None:
    if not text:
        return None
    path, _, git_hash = text.rpartition(";")
    if not Path(path).is_dir() or len(git_hash) != 40:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be the folder of a repository, a semicolon and a full hash"
        )
    return Pin(repository=Path(path).absolute(), git_hash=git_hash)


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from 1 on")
    return int(text)


def _machine(load: float) -> dict[str, Any]:
    """Return what a reader must know to read the figures; no name and no path of the machine."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": platform.system(),
        "load average at the start": round(load, 2),
        "load average at the end": round(os.getloadavg()[0], 2),
    }


if __name__ == "__main__":
    raise SystemExit(main())
