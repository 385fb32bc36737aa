"""The rate at which `perfrun explain` names a seeded slowdown first, and nothing between equals.

    python -m overhead.explained --tries=40 --subject=python --workspace=/tmp/explained
    python -m overhead.explained --tries=10 --subject=torch --python=.envs/torch/bin/python ...

Each try is a real explanation with real trials: one of a hundred functions (or one of ten operators
of PyTorch) does more work on the new side, another one each time. An operator is called more often
or gets a larger input, by turns of a coin. After each try a line is printed and, with `--equal`, an
explanation of two equal sides follows it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ENTRY = Path(__file__).resolve().parent.parent / "perfrun" / "benchmark.py"
_FUNCTIONS = 100
_HEAD = """
import os
from perfrun import Benchmark
SLOW = os.environ.get("SLOW", "")
FACTOR = int(os.environ.get("FACTOR", "1"))
"""
_FUNCTION = """
def work_{number}():
    total = 0
    for k in range({loops} * (FACTOR if SLOW == "work_{number}" else 1)):
        total += k * k
    return total
"""
_PYTHON = """
class Cases(Benchmark):
    def step(self):
        for work in ALL:
            work()

    def measures(self):
        self.measure(self.step, iterations=200, warmup=3)
"""
# Operators that PyTorch's profiler names so, each a call that takes part of a step.
OPERATORS = {
    "aten::mm": "a @ b",
    "aten::sort": "torch.sort(v[: 10_000 * n])",
    "aten::cumsum": "torch.cumsum(v, 0)",
    "aten::tanh": "torch.tanh(v)",
    "aten::exp": "torch.exp(v)",
    "aten::sin": "torch.sin(v)",
    "aten::erf": "torch.erf(v)",
    "aten::log1p": "torch.log1p(w)",
    "aten::sigmoid": "torch.sigmoid(v)",
    "aten::sqrt": "torch.sqrt(w)",
}
WAYS = ("more often", "larger")  # in which an operator does more work
_TORCH = """
import torch
torch.set_num_threads(1)
a, b = torch.randn(320, 320), torch.randn(320, 320)
v = torch.randn(200_000)
w = v.abs()
IS_LARGER = os.environ.get("HOW") == "larger"
LARGE = (a.repeat(FACTOR, 1), b, v.repeat(FACTOR), w.repeat(FACTOR), FACTOR)
CALLS = {calls}

class Cases(Benchmark):
    def step(self):
        for name, call in CALLS.items():
            if name != SLOW:
                call(a, b, v, w, 1)
            elif IS_LARGER:
                call(*LARGE)
            else:
                for _ in range(FACTOR):
                    call(a, b, v, w, 1)

    def measures(self):
        self.measure(self.step, iterations=20, warmup=3)
"""


def write_subject(folder: Path, subject: str) -> list[str]:
    """Write the benchmark's class; return the names of what can be slowed."""
    package = folder / "pkg"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    if subject == "torch":
        calls = ", ".join(
            f"{name!r}: lambda a, b, v, w, n: {code}" for name, code in OPERATORS.items()
        )
        source, names = _HEAD + _TORCH.format(calls="{" + calls + "}"), list(OPERATORS)
    else:
        functions = "".join(
            _FUNCTION.format(number=number, loops=100 + 10 * (number % 10))
            for number in range(_FUNCTIONS)
        )
        names = [f"work_{number}" for number in range(_FUNCTIONS)]
        source = f"{_HEAD}{functions}\nALL = [{', '.join(names)}]\n{_PYTHON}"
    (package / "cases.py").write_text(source, encoding="utf-8")
    return names


def explain(folder: Path, slow: str, how: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run one explanation; return its document."""
    kind = "torch" if given.subject == "torch" else "cprofile"
    words = [sys.executable, str(ENTRY), "explain", f"--b=--env=SLOW={slow}"]
    words += [f"--env=FACTOR={given.factor}", f"--env=HOW={how}"]
    words += [f"--python_path={folder}", f"--profile={kind}"]
    words += ["--benchmark_methods=pkg.cases.Cases.measures", f"--turns={given.turns}"]
    words += [f"--workspace={folder / 'workspace'}", "--format=json", "--quiet"]
    words += [f"--python={given.python}"] if given.python else []
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, cwd=folder)
    shutil.rmtree(folder / "workspace" / "explain", ignore_errors=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def named(document: dict[str, Any]) -> list[str]:
    """Return the names of the named rows, first cause first."""
    return [row["name"] for kind in document["profiles"] for row in kind["rows"] if row["named"]]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the tries and print what they named."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--tries", type=int, default=40)
    made.add_argument("--subject", choices=("python", "torch"), default="python")
    made.add_argument("--python", help="interpreter of the trials")
    made.add_argument("--workspace", type=Path, required=True)
    made.add_argument("--turns", type=int, default=10)
    made.add_argument("--factor", type=int, default=20, help="times the work of the slowed one")
    made.add_argument("--equal", action="store_true", help="an equal pair after each try, too")
    made.add_argument("--only_equal", action="store_true", help="equal pairs and no others")
    made.add_argument("--seed", type=int, default=1)
    given = made.parse_args(argv)
    names = write_subject(given.workspace, given.subject)
    chooser = random.Random(given.seed)  # noqa: S311
    first = wrongly = also = 0
    for number in range(1, given.tries + 1):
        slow = "" if given.only_equal else chooser.choice(names)
        how = chooser.choice(WAYS) if given.subject == "torch" else WAYS[0]
        document = explain(given.workspace, slow, how, given)
        found = named(document)
        first += found[:1] == [slow]
        also += any(name != slow for name in found)
        ratio = document["time"]["new"] / document["time"]["base"]
        text = f"{number}: {slow or 'nothing'} {how if slow else ''}, {ratio:.2f} times; "
        alike = any(one["common_is_named"] for one in document["profiles"])
        text += f"named {found[:3] or ('all' if alike else 'nothing')}"
        if given.equal:
            equal = explain(given.workspace, "", how, given)
            alike = any(one["common_is_named"] for one in equal["profiles"])
            wrongly += bool(named(equal)) or alike
            text += f"; equal sides: named {named(equal) or ('all' if alike else 'nothing')}"
        text += f"; so far first {first}/{number}, others named in {also}"
        text += f", equal wrong {wrongly}/{number}" if given.equal else ""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
