"""Count how often nights of identical code on this machine are called different.

    python -m overhead.aa                  # docs/research/comparison.md: 50 comparisons a row
    python -m overhead.aa --nights=3 --trials=3

The program runs nights of five methods with `perfrun nightly`, compares each with the next one by
`perfrun compare`, and runs each method against itself by `perfrun ab`. All of it is real: the
processes, and the other load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from overhead.processes import PERFRUN, SUBJECTS, environment

METHODS = ("add", "sort", "copy", "text", "call")
METRIC = "wall_time"
VERDICTS = ("faster", "slower", "equivalent", "undecided")
SUITE = """
name = "aa"
workspace = "workspace"
python_path = ["{subjects}"]
trials = {trials}
[[methods]]
name = "steady.Steady.filter:.*"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the nights and the pairs, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nights", type=int, default=11)
    parser.add_argument("--trials", type=int, default=5, help="of each method in a night")
    parser.add_argument("--ab", type=int, default=10, help="`perfrun ab` runs of each method")
    asked = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="perfrun aa ") as scratch:
        folder = Path(scratch)
        suite = SUITE.format(subjects=SUBJECTS, trials=asked.trials)
        (folder / "suite.toml").write_text(suite, encoding="utf-8")
        names = [_perfrun(folder, "nightly", "suite.toml")["night"] for _ in range(asked.nights)]
        compared: Counter[str] = Counter()
        for base, new in pairwise(names):
            found = _perfrun(folder, "compare", base, new, f"--metrics={METRIC}")
            compared.update(row["verdict"] for row in found["comparisons"])
        paired: Counter[str] = Counter()
        for method in METHODS * asked.ab:
            paired[_ab(folder, method)] += 1
    sys.stdout.write(
        f"| identical code, {os.cpu_count()} cores, load {load:.1f} to {os.getloadavg()[0]:.1f} "
        f"| comparisons | {' | '.join(VERDICTS)} | different |\n|{'---|' * 7}\n"
    )
    for name, verdicts in (
        (f"nights of {asked.trials} trials, perfrun compare", compared),
        ("perfrun ab", paired),
    ):
        total = max(1, verdicts.total())
        different = (verdicts["faster"] + verdicts["slower"]) / total
        counts = " | ".join(str(verdicts[verdict]) for verdict in VERDICTS)
        sys.stdout.write(f"| {name} | {verdicts.total()} | {counts} | {different:.1%} |\n")
    return 0


def _ab(folder: Path, method: str) -> str:
    found = _perfrun(
        folder,
        *("ab", f"--python_path={SUBJECTS}", "--max_pairs=20"),
        f"--benchmark_methods=steady.Steady.{method}",
    )
    rows = [row for row in found["comparisons"] if row["metric"] == METRIC]
    return str(rows[0]["verdict"])


def _perfrun(folder: Path, *words: str) -> Any:
    """Return what a command prints; a verdict's exit status is no failure."""
    argv = [*PERFRUN, *words, "--format=json"]
    done = subprocess.run(
        argv, cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    raise SystemExit(main())
