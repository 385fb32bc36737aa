"""Hold the figures of every shipped model against a loop written by hand, in pairs.

    python -m overhead.beside_loops --python=torch=FILE --python=tensorflow=FILE --out=loops.jsonl
    python -m overhead.beside_loops --show=loops.jsonl

A pair is one process of `overhead/loops/` and one trial of perfrun, in random order, with equal
settings and the same CPU. Each pair is appended to the file as one JSON line, so a measurement
that was interrupted goes on where it stopped. The FLOPs are held against PyTorch's own counter: it
is the reference for the same architecture in the other frameworks, too.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any

from overhead.processes import ROOT, MeasurementError, compile_modules, finish, perfrun
from overhead.table import figure, ratios, spread
from perfrun.run.allocator import RETAIN

FRAMEWORKS = ("torch", "tensorflow", "jax")
PHASES = {"inference": 1, "training": 2}  # and their batch sizes
WARMUP, STEPS = 2, 7
BRIEF = ("sensor_net", "deep_mnist", "acoustic_model")  # whose steps take milliseconds: ...
BRIEF_WARMUP, BRIEF_STEPS = 20, 100  # ... more of them make a median


@dataclass(frozen=True, kw_only=True)
class Case:
    """A shipped model in a framework and a phase."""

    framework: str
    model: str
    phase: str
    allocator: str = "default"  # of both sides

    @property
    def words(self) -> list[str]:
        """The settings that both sides have, as flags of the loops."""
        batch = PHASES[self.phase]
        warmup = BRIEF_WARMUP if self.model in BRIEF else WARMUP
        return [f"--model={self.model}", f"--batch_size={batch}", f"--warmup={warmup}"]

    @property
    def steps(self) -> int:
        """The number of timed steps."""
        return BRIEF_STEPS if self.model in BRIEF else STEPS


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of one process; FLOPs are of one example, and None where nobody counted them."""

    median_s: float
    peak_rss_bytes: float
    parameters: float
    flops_per_example: float | None = None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The figures of perfrun and of the loop beside it."""

    case: Case
    perfrun: Figures
    loop: Figures


def shipped_models(framework: str) -> tuple[str, ...]:
    """Return the models of the framework's classes: `class Name(Model, model=...)`."""
    found = []
    for path in sorted((ROOT / "benchmarks" / framework).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found += [
                    word.value.value
                    for word in node.keywords
                    if word.arg == "model" and isinstance(word.value, ast.Constant)
                ]
    return tuple(dict.fromkeys(str(name) for name in found))


def measure(case: Case, python: str, workspace: Path, cpu: int | None) -> Pair:
    """Run both sides once, in random order."""
    pinned = [] if cpu is None else ["taskset", "--cpu-list", str(cpu)]
    sides = {"perfrun": _perfrun, "loop": _loop}
    names = list(sides)
    random.shuffle(names)
    found = {name: sides[name](case, python, workspace, pinned) for name in names}
    return Pair(case=case, perfrun=found["perfrun"], loop=found["loop"])


def _loop(case: Case, python: str, _workspace: Path, pinned: list[str]) -> Figures:
    loop = ROOT / "overhead" / "loops" / f"{case.framework}_loop.py"
    words = [f"--phase={case.phase}", f"--steps={case.steps}"]
    if case.framework != "jax":  # which takes its threads from the process's CPUs
        words.append("--threads=1")
    kept = RETAIN if case.allocator == "retain" else {}
    done = finish([*pinned, python, str(loop), *case.words, *words], variables=kept)
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def _perfrun(case: Case, python: str, workspace: Path, pinned: list[str]) -> Figures:
    method = f"benchmarks.{case.framework}.model.Model.{case.phase}"
    threads = [] if case.framework == "jax" else ["--intra_threads=1", "--inter_threads=1"]
    flags = [f"--python={python}", f"--allocator={case.allocator}"]
    words = ["--", *case.words, f"--iterations={case.steps}", *threads]
    run = perfrun(workspace, [method], *flags, *words, prefix=pinned)
    (document,) = run.summaries
    report = document["benchmark_result"]
    metrics = {metric["name"]: metric["value"] for metric in report["metrics"]}
    return Figures(
        median_s=report["wall_time"],
        peak_rss_bytes=document["perfrun"]["memory"]["process_rss"]["bytes"],
        parameters=metrics["parameters"],
        flops_per_example=metrics.get("flops_per_example"),
    )


def counted(model: str, phase: str, python: str) -> float | None:
    """Return PyTorch's own count of an example's FLOPs; None for a model PyTorch cannot build."""
    loop = ROOT / "overhead" / "loops" / "torch_loop.py"
    try:
        done = finish([python, str(loop), f"--model={model}", f"--phase={phase}", "--count"])
    except MeasurementError:
        return None
    return float(json.loads(done.stdout.splitlines()[-1])["flops_per_example"])


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results; a last line that was cut off is left out."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


def table(lines: Iterable[dict[str, Any]], allocator: str = "default") -> str:
    """Return an allocator's results as Markdown, a row for each model, framework and phase."""
    pairs: dict[Case, list[dict[str, Any]]] = {}
    references: dict[tuple[str, str], float] = {}
    for line in lines:
        if "counted" in line:
            references[line["model"], line["phase"]] = line["counted"]
        else:
            pairs.setdefault(Case(**line["case"]), []).append(line)
    cases = sorted(
        (case for case in pairs if case.allocator == allocator),
        key=lambda case: (case.model, case.framework, case.phase),
    )
    head = (
        *("model", "framework", "phase", "pairs", "latency, ms", "of the loop's"),
        *("peak memory, MiB", "of the loop's", "parameters", "GFLOP an example", "of the count"),
    )
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for case in cases:
        rows.append("| " + " | ".join(_cells(case, pairs[case], references)) + " |")
    return "\n".join(rows) + "\n"


def _cells(
    case: Case, pairs: list[dict[str, Any]], references: dict[tuple[str, str], float]
) -> Iterator[str]:
    ours = [pair["perfrun"] for pair in pairs]
    loops = [pair["loop"] for pair in pairs]
    yield from (case.model, case.framework, case.phase, str(len(pairs)))
    for name, unit in (("median_s", 1e3), ("peak_rss_bytes", 1 / 2**20)):
        mine, theirs = ([side[name] for side in sides] for sides in (ours, loops))
        # The range of n pairs holds the true median with a probability of 1 - 2 / 2**n: 94 % for 5.
        found = spread(ratios(mine, theirs))
        yield figure(median(mine) * unit)
        yield f"{found.median:.3f} ({found.low:.3f}..{found.high:.3f})"
    same = all(
        one["parameters"] == other["parameters"] for one, other in zip(ours, loops, strict=True)
    )
    yield f"{ours[0]['parameters']:,.0f}" + ("" if same else f" (loop {loops[0]['parameters']:,})")
    flops = ours[0]["flops_per_example"]
    reference = references.get((case.model, case.phase))
    yield "unknown" if flops is None else figure(flops / 1e9)
    yield "" if flops is None or not reference else f"{flops / reference:.4f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is not in the file yet, or print the table of it; return the exit status."""
    options = _parser().parse_args(argv)
    if options.show:
        sys.stdout.write(table(read(options.show), options.allocator))
        return 0
    pythons = dict(each.split("=", 1) for each in options.python)
    compile_modules()
    done = read(options.out)
    lock = Lock()

    def keep(line: dict[str, Any]) -> None:
        with lock, options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    if options.count:
        _count(options, pythons["torch"], done, keep)
        return 0
    cpus: list[int | None] = list(range(options.jobs)) if options.jobs > 1 else [None]
    waiting = _missing(options, pythons, done)
    with tempfile.TemporaryDirectory(prefix="perfrun loops ") as scratch:

        def work(cpu: int | None) -> int:
            failures = 0
            while True:
                with lock:
                    case = next(waiting, None)
                if case is None:
                    return failures
                sys.stderr.write(f"{case.framework} {case.model} {case.phase}\n")
                try:
                    folder = Path(scratch) / str(cpu)
                    keep(asdict(measure(case, pythons[case.framework], folder, cpu)))
                except (MeasurementError, KeyError, ValueError) as error:
                    failures += 1
                    sys.stderr.write(f"{case.framework} {case.model} {case.phase}: {error}\n")

        with ThreadPoolExecutor(len(cpus)) as pool:
            return min(1, sum(pool.map(work, cpus)))


def _missing(
    options: argparse.Namespace, pythons: dict[str, str], done: list[dict[str, Any]]
) -> Iterator[Case]:
    """Yield each case as often as pairs of it are missing, a round of all cases at a time."""
    cases = [
        Case(framework=framework, model=model, phase=phase, allocator=options.allocator)
        for framework in pythons
        for model in shipped_models(framework)
        for phase in options.phases
        if not options.models or model in options.models
    ]
    there = [Case(**line["case"]) for line in done if "case" in line]
    for number in range(options.rounds):
        yield from (case for case in cases if there.count(case) <= number)


def _count(options: argparse.Namespace, python: str, done: list[dict[str, Any]], keep: Any) -> None:
    there = {(line["model"], line["phase"]) for line in done if "counted" in line}
    models = {model for framework in FRAMEWORKS for model in shipped_models(framework)}
    for model in sorted(models):
        for phase in options.phases:
            if (model, phase) not in there and (not options.models or model in options.models):
                flops = counted(model, phase, python)
                if flops is not None:
                    keep({"counted": flops, "model": model, "phase": phase})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overhead.beside_loops", description=__doc__)
    parser.add_argument("--python", action="append", default=[], metavar="FRAMEWORK=FILE")
    parser.add_argument("--models", type=lambda text: text.split(","), default=[])
    parser.add_argument("--phases", type=lambda text: text.split(","), default=list(PHASES))
    parser.add_argument("--rounds", type=int, default=5, help="pairs of each case (default 5)")
    parser.add_argument(
        *("--jobs",), type=int, default=1, choices=range(1, (os.cpu_count() or 1) + 1),
        help="cases at the same time, each on a CPU of its own (default 1)",
    )  # fmt: skip
    parser.add_argument(
        *("--allocator",), choices=("default", "retain"), default="default",
        help="of both sides: glibc as it is, or one that keeps freed memory (default default)",
    )  # fmt: skip
    parser.add_argument("--count", action="store_true", help="count the references' FLOPs")
    parser.add_argument("--out", type=Path, default=Path("loops.jsonl"), metavar="FILE")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the table of a file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
