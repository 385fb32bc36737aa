"""Hold the figures of every shipped model against a loop written by hand, in pairs.

    python -m overhead.beside_loops --python=torch=FILE --python=tensorflow=FILE
    python -m overhead.beside_loops --show

A pair is one process of `overhead/loops/` and one trial of perfrun, in random order, with equal
settings and the same CPU. Each pair is appended to `overhead/loops/pairs.jsonl` as one JSON line,
so a measurement that was interrupted goes on where it stopped, in another session, too. The FLOPs
are held against PyTorch's own counter: it is the reference for the same architecture in the other
frameworks, too.

JAX compiles into a cache on disk before its pairs, both sides alike. Else the compiler decides the
peak memory of small models, and most of the time goes into it.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any

from overhead.processes import ROOT, MeasurementError, compile_modules, finish, perfrun
from overhead.table import figure, ratios, spread
from perfrun.probes.processor import cpu_identity, read_cpuinfo
from perfrun.run.allocator import PACKAGES, PRELOAD, RETAIN
from perfrun.worker.allocator import find_library

FRAMEWORKS = ("torch", "tensorflow", "jax")
PHASES = {"inference": 1, "training": 2}  # and their batch sizes
PAIRS = ROOT / "overhead" / "loops" / "pairs.jsonl"
# Untimed steps after the first one, and timed ones. Steps of BRIEF models take milliseconds, so
# more of them make a median; those of SLOW ones take seconds.
BRIEF = ("sensor_net", "deep_mnist", "acoustic_model")
SLOW = (
    *("bert_large", "gpt2", "gpt2_medium", "vit_b_16", "vit_l_16", "vgg11", "vgg13", "vgg16"),
    *("vgg19", "overfeat", "resnet152", "efficientnet_b5", "efficientnet_b6", "efficientnet_b7"),
)
# The sides of training images, and the tokens of training texts, where a step with the model's
# own would take minutes in one framework at least. Their parameters do not depend on them.
SMALLER = {
    **{f"efficientnet_b{number}": 64 for number in range(1, 8)},
    "bert_large": 32,
    "gpt2_medium": 32,
}
# Beside glibc's, two processes of one loop differ: in peak memory by up to 15 %, since its limits
# move with what was freed, and in latency, since what it gives back is faulted in again.
ALLOCATOR = "tcmalloc"
# Each large block has pages of its own, so no hole between others decides the peak; but all are
# faulted in again in each step.
MAPPED, MAPS = "mapped", {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(128 * 2**10)}
LIBRARIES = tuple(PACKAGES)
TEXTS = ("bert_large", "gpt2_medium")  # of SMALLER
SIDES = ("perfrun", "loop")
BOUNDS = {"peak_rss_bytes": 0.02, "median_s": 0.05}  # of a ratio to the loop's
TIMED_S = 1.0  # of a process at least, where the steps are known to be short
MOST_STEPS = 1000
TURNS = 10  # cases that take turns
ENOUGH = 5  # pairs, whose range holds the true median with a probability of 94 %


@dataclass(frozen=True, kw_only=True)
class Case:
    """A shipped model in a framework and a phase."""

    framework: str
    model: str
    phase: str
    allocator: str = ALLOCATOR  # of both sides

    @property
    def words(self) -> list[str]:
        """The flags by which a loop gets the model."""
        words = [f"--model={self.model}", f"--phase={self.phase}"]
        return words if self.size is None else [*words, f"--size={self.size}"]

    @property
    def steps(self) -> tuple[int, int]:
        """The untimed steps after the first one, and the timed ones."""
        if self.model in BRIEF:
            return 20, 100
        if self.model in SLOW:
            return 0, 2
        return (1, 7) if self.phase == "inference" else (1, 3)

    @property
    def size(self) -> int | None:
        """The side of an image or the number of tokens; None: the model's own."""
        return SMALLER.get(self.model) if self.phase == "training" else None


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where both sides of a pair run: `pinned` is a command that runs one on its CPU."""

    python: str
    workspace: Path
    pinned: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of one process; FLOPs are of one example, and None where nobody counted them."""

    median_s: float  # of its timed steps
    peak_rss_bytes: float
    parameters: float
    fastest_s: float | None = None  # of the timed steps; the first pairs have none
    flops_per_example: float | None = None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The figures of perfrun and of the loop beside it."""

    case: Case
    perfrun: Figures
    loop: Figures
    machine: str = ""  # its processor and the number of them
    day: str = ""
    steps: int | None = None  # that were timed on each side; the first pairs do not say
    seconds: float | None = None  # that the pair took


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


def steps_of(case: Case, done: Iterable[dict[str, Any]]) -> tuple[int, int]:
    """Return the case's untimed and timed steps, more of these where its pairs say they are short.

    Seven steps of 20 ms say how busy the host was in that moment.
    """
    untimed, timed = case.steps
    words = asdict(case)
    known = [pair["loop"]["median_s"] for pair in done if pair.get("case") == words]
    if not known:
        return untimed, timed
    return untimed, max(timed, min(MOST_STEPS, int(TIMED_S / median(known))))


def measure(
    case: Case, python: str, workspace: Path, cpu: int | None, steps: tuple[int, int] | None = None
) -> Pair:
    """Run both sides once, in random order, with some untimed and timed steps (the case's own)."""
    steps = steps or case.steps
    pinned = () if cpu is None else ("taskset", "--cpu-list", str(cpu))
    sides = {"perfrun": _perfrun, "loop": _loop}
    names = list(sides)
    random.shuffle(names)
    cache = workspace / "compiled"
    variables = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    if case.framework != "jax":
        variables = {}
    place = Place(python=python, workspace=workspace, pinned=pinned, variables=variables)
    if case.framework == "jax":
        mark = cache / f"{case.model} {case.phase} is here"
        if not mark.exists():
            for name in names:
                sides[name](case, place, (0, 1))
            mark.touch()
    began = time.monotonic()
    found = {name: sides[name](case, place, steps) for name in names}
    return Pair(
        case=case,
        perfrun=found["perfrun"],
        loop=found["loop"],
        machine=machine(),
        day=datetime.now(timezone.utc).date().isoformat(),
        steps=steps[1],
        seconds=round(time.monotonic() - began, 1),
    )


def machine() -> str:
    """Return the model of the processor and the number of them."""
    facts = read_cpuinfo(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return f"{cpu_identity(facts)[0]}, {os.cpu_count()} CPUs"


def _loop(case: Case, place: Place, steps: tuple[int, int]) -> Figures:
    loop = ROOT / "overhead" / "loops" / f"{case.framework}_loop.py"
    warmup, timed = steps
    words = [*case.words, f"--batch_size={PHASES[case.phase]}"]
    words += [f"--warmup={warmup}", f"--steps={timed}"]
    if case.framework != "jax":  # which takes its threads from the process's CPUs
        words.append("--threads=1")
    chosen = {**place.variables, **_allocator(case.allocator)}
    done = finish([*place.pinned, place.python, str(loop), *words], variables=chosen)
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def _allocator(name: str) -> dict[str, str]:
    """Return the variables by which a loop gets an allocator; perfrun has a flag for most."""
    if name not in LIBRARIES:
        return {"retain": RETAIN, MAPPED: MAPS}.get(name, {})
    library = find_library(name)
    if library is None:
        raise MeasurementError(f"there is no library of {name}: install {PACKAGES[name]}")
    return {PRELOAD: library}


def _perfrun(case: Case, place: Place, steps: tuple[int, int]) -> Figures:
    method = f"benchmarks.{case.framework}.model.Model.{case.phase}"
    warmup, timed = steps
    # Not as flags after `--`: a process of its own would import the framework to check them.
    knobs: dict[str, Any] = {"model": case.model, "batch_size": PHASES[case.phase]}
    knobs |= {"warmup": warmup, "iterations": timed}
    if case.size is not None:
        side = str(case.size)
        knobs["input_shape"] = side if case.model in TEXTS else f"3x{side}x{side}"
    if case.framework != "jax":
        knobs |= {"intra_threads": 1, "inter_threads": 1}
    flags = [f"--python={place.python}", f"--perfzero_constructor_args={json.dumps(knobs)}"]
    if case.allocator == MAPPED:
        flags += [f"--env={name}={value}" for name, value in MAPS.items()]
    else:
        flags.append(f"--allocator={case.allocator}")
    shared: dict[str, Any] = {"prefix": place.pinned, "variables": place.variables}
    run = perfrun(place.workspace, [method], *flags, **shared)
    (document,) = run.summaries
    report = document["benchmark_result"]
    metrics = {metric["name"]: metric["value"] for metric in report["metrics"]}
    return Figures(
        median_s=report["wall_time"],
        fastest_s=metrics["latency_min_s"],
        peak_rss_bytes=document["perfrun"]["memory"]["process_rss"]["bytes"],
        parameters=metrics["parameters"],
        flops_per_example=metrics.get("flops_per_example"),
    )


def counted(model: str, phase: str, python: str) -> float | None:
    """Return PyTorch's own count of an example's FLOPs; None for a model PyTorch cannot build."""
    loop = ROOT / "overhead" / "loops" / "torch_loop.py"
    words = Case(framework="torch", model=model, phase=phase).words
    try:
        done = finish([python, str(loop), *words, "--count"])
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


def table(lines: Iterable[dict[str, Any]], allocator: str = ALLOCATOR) -> str:
    """Return an allocator's results as Markdown, a row for each model, framework and phase.

    Peak memory is that of `of_memory`, and its allocator is named where it is another one.
    """
    lines = list(lines)
    memory = of_memory(lines, allocator)
    references = {
        (line["model"], line["phase"]): line["counted"] for line in lines if "counted" in line
    }
    head = (
        *("model", "framework", "phase", "pairs", "latency, ms", "of the loop's"),
        *("fastest step, of the loop's", "peak memory, MiB", "of the loop's", "parameters"),
        *("GFLOP an example", "of the count"),
    )
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for case, pairs in _by_case(lines, allocator).items():
        rows.append("| " + " | ".join(_cells(case, pairs, memory[case], references)) + " |")
    return "\n".join(rows) + "\n"


def _by_case(lines: Iterable[dict[str, Any]], allocator: str) -> dict[Case, list[dict[str, Any]]]:
    pairs: dict[Case, list[dict[str, Any]]] = {}
    for line in lines:
        if "case" in line and line["case"]["allocator"] == allocator:
            pairs.setdefault(Case(**line["case"]), []).append(line)
    order = sorted(pairs, key=lambda case: (case.model, case.framework, case.phase))
    return {case: pairs[case] for case in order}


def of_memory(
    lines: Iterable[dict[str, Any]], allocator: str = ALLOCATOR
) -> dict[Case, list[dict[str, Any]]]:
    """Return the pairs that tell the peak memory of each row: those of `mapped` if there are many.

    They are measured where an allocator's heap decides the peak. The same blocks in the same order
    leave a hole between others on one side and none on the other, by where earlier blocks lie.
    """
    lines = list(lines)
    mapped = _by_case(lines, MAPPED)
    found = {}
    for case, pairs in _by_case(lines, allocator).items():
        others = mapped.get(replace(case, allocator=MAPPED), [])
        found[case] = others if len(others) >= ENOUGH else pairs
    return found


def summary(lines: Iterable[dict[str, Any]], allocator: str = ALLOCATOR) -> str:
    """Say how many rows keep to the bounds, and name those whose pairs are all outside of one.

    A median may be outside by chance, a range of five pairs with a probability of 1 in 16 at most.
    """
    lines = list(lines)
    cases = _by_case(lines, allocator)
    held = {"peak_rss_bytes": of_memory(lines, allocator), "median_s": cases}
    many = sum(len(pairs) >= ENOUGH for pairs in cases.values())
    said = [f"{len(cases)} rows, {many} of them with {ENOUGH} pairs at least"]
    for name, bound in BOUNDS.items():
        found = {
            case: spread(ratios(*([pair[side][name] for pair in pairs] for side in SIDES)))
            for case, pairs in held[name].items()
        }
        within = sum(abs(one.median - 1) <= bound for one in found.values())
        said.append(f"{name}: the median is within {bound:.0%} of the loop's in {within} rows")
        for case, one in found.items():
            if one.low > 1 + bound or one.high < 1 - bound:
                words = f"{case.model} {case.framework} {case.phase}"
                said.append(f"  {words}: {one.low:.3f}..{one.high:.3f} in {one.count} pairs")
    shares = [share for pairs in cases.values() if (share := fastest_ratio(pairs)) is not None]
    within = sum(abs(share - 1) <= BOUNDS["median_s"] for share in shares)
    said.append(
        f"the fastest step is within {BOUNDS['median_s']:.0%} of the loop's "
        f"in {within} of {len(shares)} rows"
    )
    machines = Counter((pair["machine"], pair["day"]) for pairs in cases.values() for pair in pairs)
    said += [f"{count} pairs: {name}, {day}" for (name, day), count in machines.items()]
    return "\n".join(said) + "\n"


def of_one_machine(pairs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pairs of the machine that has most of them; their seconds can be compared."""
    (name, _) = Counter(pair["machine"] for pair in pairs).most_common(1)[0]
    return [pair for pair in pairs if pair["machine"] == name]


def fastest_ratio(pairs: Sequence[dict[str, Any]]) -> float | None:
    """Divide perfrun's fastest step of all pairs of a machine by the loop's; None without them.

    What else a host does can slow a step down, and never makes it faster. So the fastest of many
    steps says what a latency is on an idle machine, where medians still say what the neighbours
    did (Chen and Revels, Robust benchmarking in noisy environments, 2016, arXiv:1608.04295).
    """
    kept = [pair for pair in of_one_machine(pairs) if pair["loop"].get("fastest_s")]
    if not kept:
        return None
    ours, loops = (min(pair[side]["fastest_s"] for pair in kept) for side in SIDES)
    return float(ours / loops)


def _cells(
    case: Case,
    pairs: list[dict[str, Any]],
    memory: list[dict[str, Any]],
    references: dict[tuple[str, str], float],
) -> Iterator[str]:
    ours = [pair["perfrun"] for pair in pairs]
    loops = [pair["loop"] for pair in pairs]
    phase = case.phase if case.size is None else f"{case.phase} ({case.size})"
    yield from (case.model, case.framework, phase, str(len(pairs)))
    yield from _figure_and_ratio(pairs, "median_s", 1e3)
    fastest = fastest_ratio(pairs)
    yield "" if fastest is None else f"{fastest:.3f}"
    peak, ratio = _figure_and_ratio(memory, "peak_rss_bytes", 1 / 2**20)
    other = memory[0]["case"]["allocator"]
    yield from (peak, ratio if other == case.allocator else f"{ratio}, {len(memory)} {other}")
    same = all(
        one["parameters"] == other["parameters"] for one, other in zip(ours, loops, strict=True)
    )
    yield f"{ours[0]['parameters']:,.0f}" + ("" if same else f" (loop {loops[0]['parameters']:,})")
    flops = ours[0]["flops_per_example"]
    reference = references.get((case.model, case.phase))
    yield "unknown" if flops is None else figure(flops / 1e9)
    yield "" if flops is None or not reference else f"{flops / reference:.4f}"


def _figure_and_ratio(pairs: list[dict[str, Any]], name: str, unit: float) -> tuple[str, str]:
    mine, theirs = ([pair[side][name] for pair in pairs] for side in SIDES)
    # The range of n pairs holds the true median with a probability of 1 - 2 / 2**n: 94 % for 5.
    found = spread(ratios(mine, theirs))
    here = median(pair["perfrun"][name] for pair in of_one_machine(pairs))
    return figure(here * unit), f"{found.median:.3f} ({found.low:.3f}..{found.high:.3f})"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is not in the file yet, or print the table of it; return the exit status."""
    options = _parser().parse_args(argv)
    if options.show:
        lines = read(options.out)
        sys.stdout.write(f"{table(lines, options.allocator)}\n{summary(lines, options.allocator)}")
        return 0
    pythons = dict(each.split("=", 1) for each in options.python)
    compile_modules()
    done = read(options.out)
    lock = Lock()

    def keep(line: dict[str, Any]) -> None:
        with lock, options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            done.append(line)

    if options.count:
        _count(options, pythons["torch"], done, keep)
        return 0
    cpus: list[int | None] = list(range(options.jobs)) if options.jobs > 1 else [None]
    waiting = missing(list(_cases(options, pythons)), options.rounds, done)
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
                    folder = options.workspace or Path(scratch)
                    steps = steps_of(case, done)
                    keep(asdict(measure(case, pythons[case.framework], folder, cpu, steps)))
                except (MeasurementError, KeyError, ValueError) as error:
                    failures += 1
                    sys.stderr.write(f"{case.framework} {case.model} {case.phase}: {error}\n")

        with ThreadPoolExecutor(len(cpus)) as pool:
            return min(1, sum(pool.map(work, cpus)))


def _cases(options: argparse.Namespace, frameworks: Iterable[str]) -> Iterator[Case]:
    for framework in frameworks:
        for model in shipped_models(framework):
            if not options.models or model in options.models:
                for phase in options.phases:
                    yield Case(
                        framework=framework,
                        model=model,
                        phase=phase,
                        allocator=options.allocator,
                    )


def missing(cases: Sequence[Case], rounds: int, done: Sequence[dict[str, Any]]) -> Iterator[Case]:
    """Yield each case as often as pairs of it are missing; `done` may grow meanwhile.

    First comes one pair of each, then all that is missing of some cases, those of short pairs
    first: so a measurement that is cut off has as many whole rows as its time allows. The cases of
    a group take turns, since a host may be busy for minutes: that falls on a pair of each of them.
    """
    there = Counter(Case(**line["case"]) for line in done if "case" in line)
    yield from (case for case in cases if there[case] < min(1, rounds))
    took = {Case(**line["case"]): line.get("seconds") or 0.0 for line in done if "case" in line}
    left = {case: rounds - max(1, there[case]) for case in cases}
    waiting = [case for case in cases if left[case] > 0]
    waiting.sort(key=lambda case: took.get(case, math.inf))
    for begin in range(0, len(waiting), TURNS):
        group = waiting[begin : begin + TURNS]
        for turn in range(max(left[case] for case in group)):
            yield from (case for case in group if left[case] > turn)


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
        *("--allocator",), choices=("default", MAPPED, "retain", *LIBRARIES), default=ALLOCATOR,
        help=f"of both sides; default: glibc as it is; {MAPPED}: glibc, large blocks alone "
        f"(default {ALLOCATOR})",
    )  # fmt: skip
    parser.add_argument(
        *("--workspace",), type=Path, metavar="FOLDER",
        help="of perfrun, to count a model once for several calls (default: a temporary one)",
    )  # fmt: skip
    parser.add_argument("--count", action="store_true", help="count the references' FLOPs")
    parser.add_argument(
        *("--out",), type=Path, default=PAIRS, metavar="FILE",
        help="where the pairs are kept, and read from (default overhead/loops/pairs.jsonl)",
    )  # fmt: skip
    parser.add_argument("--show", action="store_true", help="print the table of what is kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
