"""The command line of `perfrun versus` as values: arms, environments, prices, runs.

An arm is one of `--frameworks=LABEL[=FRAMEWORK][:BACKEND][:MODE],...`. The functions
only parse and check.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfrun.errors import UsageError
from perfrun.options.command_line import parse
from perfrun.options.parsers import (
    CommandParser,
    parse_shell_words,
    parse_whole,
    parse_word,
    split_at_dashes,
)
from perfrun.options.plan import RunPlan, refuse_baseline
from perfrun.text import redact_words

# The class of each framework; docs/guides/versus.md lists what such a class needs.
CLASSES = {
    "torch": "benchmarks.torch.model.Model",
    "tensorflow": "benchmarks.tensorflow.model.Model",
    "jax": "benchmarks.jax.model.Model",
    "keras": "benchmarks.keras.model.Model",
}
# What Keras computes with: `keras:jax`. `keras` alone is another name of tensorflow, as before.
KERAS_BACKENDS = ("tensorflow", "torch", "jax")
_OTHER_NAMES = {"pytorch": "torch", "tf": "tensorflow", "keras": "tensorflow"}
# Mode -> the end of the method's name after the phase; None: it has no such end.
_MODES: dict[str, str | None] = {
    name: name for name in ("eager", "compiled", "bfloat16", "float16")
}
_MODES_OF: dict[str, dict[str, str | None]] = {
    "tensorflow": {"xla": "compiled", "graph": None},
    "jax": {"xla": "compiled"},
}
_TYPES = ("bfloat16", "float16")  # modes that say with what type an arm computes
UNEQUAL = ("dtype", "tf32", "layout", "threads", "allocator")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,60}")
_PRICE = "--price_per_hour"
PHASES = {
    "inference": ("inference",),
    "training": ("training",),
    "both": ("inference", "training"),
}
FORMATS = ("table", "markdown", "json")
MIN_EFFECT = 0.02  # as `perfrun ab`
ROUNDS = 30
FEWEST_FOR_INTERVAL = 6  # trials of an arm that has no rival left
_EPILOG = """\
Flags of a run (--workspace, --git_repos, --timeout, --env, --resume, --platform_name, ...) apply to
all frameworks; flags of the benchmarks follow --:
  perfrun versus --model=efficientnet_b0 --frameworks=tensorflow,jax,keras:jax \\
      --batch_sizes=1,8 -- --dtype=bfloat16

Exit status: 0 everything ran, 1 something failed, 2 wrong usage, 130 interrupted. A slower
framework is no failure. docs/guides/versus.md explains everything.
"""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm of the comparison: a framework or a class of the user, in a mode."""

    label: str
    framework: str  # one of CLASSES; for a class of the user, the label
    class_path: str
    mode: str | None  # as the user wrote it
    backend: str | None = None  # of Keras

    @property
    def names_its_type(self) -> bool:
        """Return True when the mode is a type, so that another one is meant to differ from it."""
        return self.mode in _TYPES

    def method(self, phase: str) -> str:
        """Return the method for `inference` or `training`, as `--benchmark_methods` takes it."""
        suffix = _suffix(self.framework, self.mode) if self.mode else None
        return f"{self.class_path}.{phase}{f'_{suffix}' if suffix else ''}"


def parse_arms(text: str) -> tuple[Arm, ...]:
    """Parse `--frameworks`; the first one is the base. Raises UsageError."""
    found = tuple(_arm(item.strip()) for item in text.split(",") if item.strip())
    if not found:
        raise UsageError("--frameworks: names none; write --frameworks=torch,tensorflow")
    folders: dict[str, str] = {}
    for one in found:
        folder = folder_of(one.label)
        if folder in folders:
            raise UsageError(
                f"--frameworks: {folders[folder]} and {one.label} cannot be told apart; give one "
                f"another name, as other={one.framework}"
            )
        folders[folder] = one.label
    return found


def folder_of(label: str) -> str:
    """Return the name of an arm's workspace: its label without `:` and `+`."""
    return re.sub(r"[:+]", "_", label)


def _arm(item: str) -> Arm:
    label, equals, rest = item.partition("=")
    if not equals:
        rest = item
    if not _LABEL.fullmatch(label):
        raise UsageError(
            f"--frameworks: {item!r}: a name begins with a letter or digit and has letters, "
            "digits and _ . : + - only"
        )
    name, _, mode = rest.partition(":")
    if "." in name:
        return _own_class(item, label, name, mode)
    framework = _OTHER_NAMES.get(name, name)
    backend = None
    first, _, rest = mode.partition(":")
    if name == "keras" and first in KERAS_BACKENDS:
        framework, backend, mode = "keras", first, rest
    if framework not in CLASSES:
        known = [*(one for one in CLASSES if one != "keras"), "keras:BACKEND"]
        raise UsageError(
            f"--frameworks: {item!r}: {name!r} is none of {', '.join(known)}; a class of your "
            "own is named as NAME=package.module.Class"
        )
    if mode:
        _suffix(framework, mode)
    return Arm(
        label=label,
        framework=framework,
        class_path=CLASSES[framework],
        mode=mode or None,
        backend=backend,
    )


def _own_class(item: str, label: str, path: str, mode: str) -> Arm:
    parts = path.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise UsageError(f"--frameworks: {item!r}: {path!r} is not package.module.Class")
    if "=" not in item:
        raise UsageError(f"--frameworks: {item!r}: give the class a name: NAME={item}")
    if mode and not mode.isidentifier():
        raise UsageError(f"--frameworks: {item!r}: {mode!r} cannot end the name of a method")
    return Arm(label=label, framework=label, class_path=path, mode=mode or None)


def _suffix(framework: str, mode: str) -> str | None:
    if framework not in CLASSES:  # a class of the user may name its methods freely
        return mode
    modes = _MODES | _MODES_OF.get(framework, {})
    if mode not in modes:
        raise UsageError(
            f"--frameworks: {framework}:{mode}: the mode is one of {', '.join(sorted(modes))}"
        )
    return modes[mode]


def named_values(values: Sequence[str] | None, flag: str, arms: Sequence[Arm]) -> dict[str, str]:
    """Parse `NAME=VALUE` of a repeatable flag; return the values by label. Raises UsageError.

    NAME is a label or a framework. A value without a name is for all arms that have none.
    """
    known = {name for one in arms for name in (one.label, one.framework)}
    given: dict[str, str] = {}
    for text in values or ():
        name, equals, value = text.partition("=")
        # The path of an interpreter may contain `=`; the part before it is then no name.
        if not equals or (name not in known and ("/" in name or name.startswith("-"))):
            name, value = "", text
        elif name not in known:
            raise UsageError(
                f"{flag}={text}: {name!r} is none of {', '.join(sorted(known))} of --frameworks"
            )
        if not value:
            raise UsageError(f"{flag}={text}: names nothing")
        if name in given:
            raise UsageError(f"{flag}: is given twice for {name or 'all'}")
        given[name] = value
    found = {}
    for one in arms:
        names = [name for name in (one.label, one.framework, "") if name in given]
        if names:
            found[one.label] = given[names[0]]
    return found


def usual_python(
    framework: str, env: Mapping[str, str] | None = None, backend: str | None = None
) -> str | None:
    """Return the default interpreter of a framework; None for that of any run.

    It is PERFRUN_PYTHON_<FRAMEWORK>, or the one that `make` has put below the current folder. That
    of Keras may be PERFRUN_PYTHON_KERAS, and is that of the backend otherwise.
    """
    if framework not in CLASSES:
        return None
    variables = os.environ if env is None else env
    names = (framework, backend) if backend else (framework,)
    given = [variables.get(f"PERFRUN_PYTHON_{name.upper()}") for name in names]
    from_variable = next(filter(None, given), None)
    if from_variable:
        return from_variable
    made = Path(".envs", names[-1], "bin", "python")
    return str(made) if made.exists() else None


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices per hour, in one currency."""

    by_name: Mapping[str, float] = field(default_factory=dict)
    for_all: float | None = None

    def of(self, label: str, framework: str, platform: str | None) -> float | None:
        """Return a price: that of the label, the framework, the platform or all, in this order."""
        for name in (label, framework, platform):
            if name is not None and name in self.by_name:
                return self.by_name[name]
        return self.for_all

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Raise UsageError when a price has an unknown name."""
        for name in self.by_name:
            if name not in known:
                raise UsageError(
                    f"{_PRICE}={name}={self.by_name[name]:g}: {name!r} is none of "
                    f"{', '.join(sorted(known))}"
                )


def parse_prices(values: Sequence[str] | None) -> Prices:
    """Parse the values of the flag, each a list with commas. Raises UsageError."""
    by_name: dict[str, float] = {}
    for_all = None
    for item in (part.strip() for text in values or () for part in text.split(",")):
        if not item:
            continue
        name, equals, number = item.rpartition("=")
        if equals and not name:
            raise UsageError(f"{_PRICE}={item}: write NUMBER or NAME=NUMBER")
        price = _price(item, number)
        if name in by_name or (not equals and for_all is not None):
            raise UsageError(f"{_PRICE}: {name or 'the price of all'} is given twice")
        if equals:
            by_name[name] = price
        else:
            for_all = price
    return Prices(by_name=by_name, for_all=for_all)


def _price(item: str, number: str) -> float:
    try:
        price = float(number)
    except ValueError:
        price = math.nan
    if not 0 < price < math.inf:
        raise UsageError(
            f"{_PRICE}={item}: a price is a number above 0, without a currency, as 2.5 or torch=2.5"
        )
    return price


@dataclass(frozen=True, kw_only=True)
class Case:
    """A phase at a batch size; arms are compared within a case."""

    phase: str
    batch_size: int

    @property
    def name(self) -> str:
        """Name in messages and in the JSON document."""
        return f"{self.phase}, batch {self.batch_size}"


@dataclass(frozen=True, kw_only=True)
class VersusPlan:
    """The plan of a comparison."""

    arms: tuple[Arm, ...]  # the first one is the base
    cases: tuple[Case, ...]
    # One run for each arm and batch size, with the methods of all phases.
    plans: Mapping[tuple[str, int], RunPlan]
    workspace: Path
    model: str | None
    rounds: int
    min_effect: float
    time_s: float | None
    seed: int | None
    prices: Prices
    allow_unequal: frozenset[str]  # of UNEQUAL
    platform_name: str | None
    output_format: str
    quiet: bool
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Combine:
    """The plan of `--combine`: saved comparisons, to be shown as one table."""

    sources: tuple[Path, ...]
    prices: Prices
    output_format: str


def parser() -> CommandParser:
    """Return a parser for the flags of `perfrun versus` that are not those of a run."""
    made = CommandParser(
        "perfrun versus",
        "Compare frameworks, each in its own environment, on the same model.",
        _EPILOG,
        "perfrun versus --frameworks=NAME,... [--model=NAME] [flags of a run] "
        "[-- flags of the benchmarks]\n       perfrun versus --combine FILE|DIR ...",
    )
    add = made.flag
    add("--frameworks", "LIST", "NAME[=FRAMEWORK|CLASS][:MODE],...; the first is the base")
    add("--allow_unequal", "LIST", f"what may differ between them: {', '.join(UNEQUAL)}, all")
    add("--model", "NAME", "model that all run, as efficientnet_b0")
    add("--batch_sizes", "LIST", "examples a step, as 1,8,32 (default 1)")
    add("--phase", "WHICH", "inference (default), training or both")
    for name, metavar, text in (
        ("--python", "[NAME=]FILE", "interpreter of a framework; repeatable"),
        ("--image", "[NAME=]IMAGE", "container image of a framework; repeatable"),
        ("--flags", "NAME=FLAGS", "more flags for one of them, as for a shell; repeatable"),
        ("--price_per_hour", "[NAME=]N", "price of an hour of a framework or platform; repeatable"),
    ):
        add(name, metavar, text, action="append")
    add("--rounds", "N", f"most trials of each (default {ROUNDS})", parse_whole)
    add("--max_pairs", "N", "the same as --rounds", parse_whole, dest="rounds")
    made.add_pair_rules(MIN_EFFECT, "round")
    made.add_format(FORMATS)
    add("--combine", "FILE|DIR", "show saved comparisons as one table", nargs="+")
    return made


def parse_versus(argv: Sequence[str]) -> VersusPlan | Combine:
    """Parse the command line. Raises UsageError."""
    words, after = split_at_dashes(argv)
    given, common = parser().parse_known_args(words)
    prices = parse_prices(given.price_per_hour)
    if given.combine:
        return _combine(given, [*common, *after], prices)
    if not given.frameworks:
        raise UsageError("perfrun versus: --frameworks is needed, as --frameworks=torch,tensorflow")
    arms = parse_arms(given.frameworks)
    batch_sizes = _batch_sizes(given.batch_sizes)
    phases = PHASES[parse_word(given.phase, "--phase", tuple(PHASES))]
    usual = ROUNDS if len(arms) > 1 else FEWEST_FOR_INTERVAL
    rounds = given.rounds or usual
    plans = _plans(given, common, after, arms, batch_sizes, phases, rounds)
    first = next(iter(plans.values()))
    named = (name for one in arms for name in (one.label, one.framework))
    prices.refuse_unknown({*named, *([first.platform_name] if first.platform_name else ())})
    return VersusPlan(
        arms=arms,
        cases=tuple(Case(phase=phase, batch_size=size) for phase in phases for size in batch_sizes),
        plans=plans,
        workspace=first.workspace.parents[1],
        model=given.model or None,
        rounds=rounds,
        min_effect=given.min_effect,
        time_s=given.time_budget,
        seed=given.seed,
        prices=prices,
        allow_unequal=_allowed(given.allow_unequal),
        platform_name=first.platform_name,
        output_format=given.format,
        quiet=first.quiet,
        argv=tuple(redact_words(argv)),
    )


def _plans(
    given: argparse.Namespace,
    common: Sequence[str],
    after: Sequence[str],
    arms: Sequence[Arm],
    batch_sizes: Sequence[int],
    phases: Sequence[str],
    rounds: int,
) -> dict[tuple[str, int], RunPlan]:
    """Return the plans of all runs; each arm has its own folder in the workspace."""
    pythons = named_values(given.python, "--python", arms)
    images = named_values(given.image, "--image", arms)
    flags_of = named_values(given.flags, "--flags", arms)
    workspaces = set()
    plans = {}
    for one in arms:
        methods = ",".join(one.method(phase) for phase in phases)
        words = [*common, f"--benchmark_methods={methods}", *_environment(one, pythons, images)]
        if one.backend:
            words.append(f"--env=KERAS_BACKEND={one.backend}")
        own_text = parse_shell_words(flags_of.get(one.label, ""), f"--flags={one.label}")
        own_words, own_after = split_at_dashes(own_text)
        _refuse_taken([*after, *own_after], given.model)
        for size in batch_sizes:
            model = [f"--model={given.model}"] if given.model else []
            flags = [*model, f"--batch_size={size}", *after, *own_after]
            try:
                plan = parse([*words, *own_words, "--", *flags], also=parser())
                if plan.profiles:
                    raise UsageError("--profile: perfrun versus does not profile; use a run")
                _refuse(plan, phases)
                _refuse_taken([f"--{name}" for name in plan.constructor_args], given.model)
            except UsageError as error:
                raise UsageError(f"{one.label}: {error}") from None
            workspaces.add(plan.workspace)
            plans[one.label, size] = _arm_plan(plan, one.label, rounds)
    if len(workspaces) > 1:
        raise UsageError("--workspace: must be the same for all; each arm has its own folder in it")
    return plans


def _environment(one: Arm, pythons: Mapping[str, str], images: Mapping[str, str]) -> list[str]:
    """Return the flags of a run that name the arm's environment."""
    if one.label in images:
        if one.label in pythons:
            raise UsageError(
                f"{one.label}: both --python and --image are given; an interpreter within the "
                f"image is --flags={one.label}='--image_python=FILE'"
            )
        return [f"--image={images[one.label]}"]
    python = pythons.get(one.label) or usual_python(one.framework, backend=one.backend)
    return [f"--python={python}"] if python else []


def _arm_plan(plan: RunPlan, label: str, rounds: int) -> RunPlan:
    labelled = f"{plan.execution_label}/{label}" if plan.execution_label else label
    return replace(
        plan,
        workspace=plan.workspace / "versus" / folder_of(label),
        execution_label=labelled,
        num_trials=rounds,
        flags={**plan.flags, "execution_label": labelled},
    )


def _refuse(plan: RunPlan, phases: Sequence[str]) -> None:
    """Raise UsageError for flags of a run that choose methods or the number of trials."""
    if len(plan.selectors) != len(phases):
        raise UsageError(
            "perfrun versus: the methods come from --frameworks, not --benchmark_methods"
        )
    refuse_baseline(plan, "perfrun versus")
    if plan.repetition.precision is not None or plan.num_trials != 1:
        raise UsageError(
            "perfrun versus: rounds go on until all is decided; --rounds and --time_budget limit "
            "them, not --benchmark_num_trials or --precision"
        )
    if plan.repetition.max_reruns or plan.execution_id:
        raise UsageError("perfrun versus: takes neither --max_reruns nor --execution_id")


def _refuse_taken(after: Sequence[str], model: str | None) -> None:
    taken = {"batch_size": "--batch_sizes", **({"model": "--model"} if model else {})}
    for word in after:
        name = word.lstrip("-").partition("=")[0]
        if word.startswith("-") and name in taken:
            raise UsageError(f"{name}: is set with {taken[name]}, for all alike")


def _allowed(text: str | None) -> frozenset[str]:
    """Return what `--allow_unequal` names. Raises UsageError."""
    names = [part.strip() for part in (text or "").split(",") if part.strip()]
    for name in names:
        if name not in (*UNEQUAL, "all"):
            raise UsageError(
                f"--allow_unequal={text}: {name!r} is none of {', '.join(UNEQUAL)}, all"
            )
    return frozenset(UNEQUAL if "all" in names else names)


def _combine(given: argparse.Namespace, others: Sequence[str], prices: Prices) -> Combine:
    named = ("frameworks", "model", "batch_sizes", "phase", "python", "image", "flags")
    more = ("allow_unequal", "rounds", "seed")
    asked = [f"--{name}" for name in (*named, *more) if getattr(given, name)]
    if others or asked:
        raise UsageError(
            f"--combine: runs nothing, so it does not take {[*asked, *others][0]}, but only "
            "--price_per_hour and --format"
        )
    return Combine(
        sources=tuple(Path(name) for name in given.combine),
        prices=prices,
        output_format=given.format,
    )


def _batch_sizes(text: str | None) -> tuple[int, ...]:
    found = []
    for item in (text or "1").split(","):
        size = parse_whole(item.strip(), "--batch_sizes", 1)
        if size is None:
            raise UsageError(f"--batch_sizes={text}: write whole numbers, as 1,8,32")
        if size in found:
            raise UsageError(f"--batch_sizes={text}: names {size} twice")
        found.append(size)
    return tuple(found)
