"""Who is compared (`--frameworks=LABEL[=FRAMEWORK][:MODE],...`), and in which environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfrun.errors import UsageError

# The class of each framework: docs/versus.md says what it must have.
CLASSES = {
    "torch": "benchmarks.torch.model.Model",
    "tensorflow": "benchmarks.tensorflow.model.Model",
}
_OTHER_NAMES = {"pytorch": "torch", "tf": "tensorflow", "keras": "tensorflow"}
# What follows the phase in the name of the method. None: the framework's own way.
MODES = {
    "eager": "eager",
    "compiled": "compiled",
    "bfloat16": "bfloat16",
    "float16": "float16",
}
_MODES_OF = {"tensorflow": {"xla": "compiled", "graph": None}}
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,60}")


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One column of the comparison: a framework, or a class of the user's, in a mode."""

    label: str
    framework: str  # torch, tensorflow; of a class of the user's, its label
    class_path: str
    mode: str | None  # as given

    def method(self, phase: str) -> str:
        """What `--benchmark_methods` takes for `inference` or `training`."""
        suffix = _suffix(self.framework, self.mode) if self.mode else None
        return f"{self.class_path}.{phase}{f'_{suffix}' if suffix else ''}"


def parse_contenders(text: str) -> tuple[Contender, ...]:
    """Parse `--frameworks`; the first one is the base. Raises UsageError."""
    found = tuple(_contender(item.strip()) for item in text.split(",") if item.strip())
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
    """The folder of a contender's workspace: its label without what is awkward in paths."""
    return re.sub(r"[:+]", "_", label)


def _contender(item: str) -> Contender:
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
    if framework not in CLASSES:
        raise UsageError(
            f"--frameworks: {item!r}: {name!r} is none of {', '.join(CLASSES)}; a class of your "
            "own is named as NAME=package.module.Class"
        )
    if mode:
        _suffix(framework, mode)
    return Contender(
        label=label, framework=framework, class_path=CLASSES[framework], mode=mode or None
    )


def _own_class(item: str, label: str, path: str, mode: str) -> Contender:
    parts = path.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise UsageError(f"--frameworks: {item!r}: {path!r} is not package.module.Class")
    if "=" not in item:
        raise UsageError(f"--frameworks: {item!r}: give the class a name: NAME={item}")
    if mode and not mode.isidentifier():
        raise UsageError(f"--frameworks: {item!r}: {mode!r} cannot end the name of a method")
    return Contender(label=label, framework=label, class_path=path, mode=mode or None)


def _suffix(framework: str, mode: str) -> str | None:
    if framework not in CLASSES:  # a class of the user's: its methods are named as it likes
        return mode
    modes: dict[str, str | None] = {**MODES, **_MODES_OF.get(framework, {})}
    if mode not in modes:
        raise UsageError(
            f"--frameworks: {framework}:{mode}: the mode is one of {', '.join(sorted(modes))}"
        )
    return modes[mode]


def named_values(
    values: Sequence[str] | None, flag: str, contenders: Sequence[Contender]
) -> dict[str, str]:
    """Parse `NAME=VALUE` of a repeatable flag, NAME being a label or a framework; by label.

    A value without a name is for all that have none of their own. Raises UsageError.
    """
    known = {name for one in contenders for name in (one.label, one.framework)}
    given: dict[str, str] = {}
    for text in values or ():
        name, equals, value = text.partition("=")
        # An interpreter's path may hold `=`: what is before it is then no name.
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
    for one in contenders:
        names = [name for name in (one.label, one.framework, "") if name in given]
        if names:
            found[one.label] = given[names[0]]
    return found


def usual_python(framework: str, env: Mapping[str, str] | None = None) -> str | None:
    """The interpreter of a framework where none is named: PERFRUN_PYTHON_<FRAMEWORK>, or the one
    that `make` has put below the current folder. None: that of any run.
    """
    if framework not in CLASSES:
        return None
    from_variable = (os.environ if env is None else env).get(variable(framework))
    if from_variable:
        return from_variable
    made = Path(".envs", framework, "bin", "python")
    return str(made) if made.exists() else None


def variable(framework: str) -> str:
    """The environment variable that names a framework's interpreter."""
    return f"PERFRUN_PYTHON_{framework.upper()}"
