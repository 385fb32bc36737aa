"""Every command of README and docs is one that the program takes; those of the first hour run."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import doc_commands
import pytest
from doc_commands import PAGES, ROOT

from perfrun import benchmark
from perfrun.errors import PerfrunError
from perfrun.image.setup_flags import make_parser as image_parser
from perfrun.options.flags import complete_prefix
from perfrun.options.flags import parser as run_parser

# Their own flags come first; all others are a run's.
TAKES_FLAGS_OF_A_RUN = ("ab", "bisect", "dlbs", "versus", "doctor", "selftest")
# Programs of others; their flags are not ours to check.
OF_OTHERS = {
    "git": "clones from the network",
    "pip": "downloads packages",
    "pipx": "installs perfrun; `make run` does the same by pip in every CI run",
    "snakeviz": "a viewer",
    "tensorboard": "a viewer",
}
MODULES_OF_OTHERS = {"memray", "timeit", "pip", "pytest", "venv", "http.server"}


class Parsed(Exception):  # noqa: N818 - a signal, not an error
    """A command line that its parser has taken, with the words that it left to others."""


def stop_after_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first parser that has taken its words end the command."""
    depth = 0

    def stopping(original: Any) -> Any:
        def parse(self: argparse.ArgumentParser, *given: Any, **named: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                _, left = original(self, *given, **named)
            finally:
                depth -= 1
            if depth:
                return _, left
            raise Parsed(left)

        return parse

    for name in ("parse_known_args", "parse_known_intermixed_args"):
        monkeypatch.setattr(
            argparse.ArgumentParser, name, stopping(getattr(argparse.ArgumentParser, name))
        )


def refusal_of_run(words: list[str]) -> str:
    """Return what a run's parser does not know, or nothing."""
    own = words[: words.index("--")] if "--" in words else words
    try:
        run_parser().parse_args([complete_prefix(word) for word in own])
    except Parsed as parsed:
        return " ".join(word for word in parsed.args[0] if word.startswith("-"))
    except PerfrunError as error:
        return error.line
    return ""


def refusal(words: list[str]) -> str:
    """Return why perfrun would not take these words, or nothing."""
    try:
        benchmark._command(words)
    except PerfrunError as error:
        return error.line
    except Parsed as parsed:
        left = list(parsed.args[0])
    else:
        return "was carried out instead of parsed"
    if words[0] in TAKES_FLAGS_OF_A_RUN:
        for word in words:
            flag, _, value = word.partition("=")
            if words[0] in ("ab", "versus") and flag in ("--a", "--b", "--flags"):
                value = value.partition("=")[2] if flag == "--flags" else value
                if found := refusal_of_run(shlex.split(value)):
                    return found
        return refusal_of_run(left)
    return " ".join(left)


def fault(words: list[str]) -> str:
    """Return why a command of a page cannot be typed, or nothing."""
    program, *rest = words
    name = program.rpartition("/")[2]
    if name == "perfrun":
        return refusal(rest)
    if name == "make":
        known = set(re.findall(r"^([\w%$()/.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        wanted = [w for w in rest if "=" not in w]
        patterns = {k.replace("$(VENV)", ".venv") for k in known}
        return " ".join(
            w
            for w in wanted
            if w not in patterns and re.sub(r"^\.envs/\w+/", ".envs/%/", w) not in patterns
        )
    if name == "docker":
        image = next((i for i, w in enumerate(rest) if w in SERVICES), None)
        return refusal(rest[image + 1 :]) if image is not None and rest[image + 1 :] else ""
    if name.startswith("python"):
        return fault_of_python(rest)
    return "" if name in OF_OTHERS else f"{name} is not known"


SERVICES = ("perfrun", "tensorflow", "jax", "perfrun/torch")


def fault_of_python(words: list[str]) -> str:
    """Return why a command of an interpreter cannot be typed, or nothing."""
    if words[0] == "-m" and words[1] in MODULES_OF_OTHERS:
        return ""
    if words[0] == "-m" and words[1] in ("perfrun", "perfrun.dlbs"):
        return refusal([*words[1].split(".")[1:], *words[2:]])
    if words[0] == "setup.py":
        return refusal_of_image(words[1:])
    if words[0] == "-m":
        base = ROOT / words[1].replace(".", "/")
        file = next(
            (f for f in (base.with_suffix(".py"), base / "__main__.py") if f.exists()), None
        )
        rest = words[2:]
    else:
        path = ROOT / words[0]
        file = path / "__main__.py" if path.is_dir() else path
        rest = words[1:]
    if file is None or not file.exists():
        return f"{words[0]} {words[1]}: no such program" if "perfzero/" not in words[0] else ""
    near = "".join(one.read_text(encoding="utf-8") for one in sorted(file.parent.glob("*.py")))
    flags = [w.partition("=")[0] for w in rest if w.startswith("--")]
    return " ".join(f for f in flags if f'"{f}"' not in near)


def refusal_of_image(words: list[str]) -> str:
    """Return what setup.py's parser does not know, or nothing."""
    try:
        image_parser().parse_args(words)
    except Parsed as parsed:
        return " ".join(parsed.args[0])
    except (PerfrunError, SystemExit) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_can_be_typed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [c.line for c in doc_commands.commands(page) if not c.is_synopsis]
    (tmp_path / "keyed").mkdir()
    for file in ("sorting.py", "keyed/sorting.py"):
        (tmp_path / file).write_text(OWN_CLASS)
    monkeypatch.chdir(tmp_path)
    split = doc_commands.words(found, tmp_path)
    assert len(split) == len(found)
    stop_after_parsing(monkeypatch)
    faults = [f"{line}: {text}" for line, w in zip(found, split, strict=True) if (text := fault(w))]
    assert faults == []


def python_block(page: Path, start: str) -> str:
    """Return the code block of a page that has this text."""
    found = doc_commands.blocks(page.read_text(encoding="utf-8"))
    return next("\n".join(lines) for kind, lines in found if start in "\n".join(lines))


OWN_CLASS = python_block(ROOT / "README.md", "class Sorting") + "\n"

# What is not run, and why; all else in README and the first hour is.
NOT_RUN = {
    r"/envs/|/path/to/": "names an environment of the reader",
    r"^make |^pipx |^docker ": "installs; CI runs these targets and images by themselves",
    r"OMP_NUM_THREADS|--time_budget=10m": "takes minutes",
    r"^perfrun bisect --good=GOOD": "names commits of the reader; tests/integration/test_bisect.py",
}
# A verdict, a finding of doctor, or too short a history: all are answers.
STATUSES = {"compare": {0, 1}, "ab": {0, 1}, "doctor": {0, 1}, "detect": {0, 1, 2}}
FIRST_HOUR = ("first_hour", "comparing", "nightly")


@pytest.mark.slow
def test_the_commands_of_the_first_hour_run(tmp_path: Path) -> None:
    """They run in order in one folder, with the files of the pages; steps and trials are fewer."""
    started = ROOT / "docs" / "get_started"
    pages = [ROOT / "README.md", *(started / f"{name}.md" for name in FIRST_HOUR)]
    assert python_block(pages[1], "class Sorting").strip() == OWN_CLASS.strip()
    few = OWN_CLASS.replace("1_000_000", "1_000")
    few = few.replace('item="number")', 'item="number", iterations=3, warmup=1)')
    step = python_block(pages[2], "key=str").strip()
    keyed = re.search(r"lambda: .*?\)(?=, items)", step)
    assert keyed
    (tmp_path / "keyed").mkdir()
    (tmp_path / "sorting.py").write_text(few)
    (tmp_path / "keyed" / "sorting.py").write_text(
        re.sub(r"lambda: .*?\)(?=, items)", keyed[0], few)
    )
    (tmp_path / "suite.toml").write_text(python_block(pages[3], "[[methods]]"))
    lines = [
        command.line
        for page in pages
        for command in doc_commands.commands(page)
        if not any(re.search(pattern, command.line) for pattern in NOT_RUN)
    ]
    lines = list(dict.fromkeys(lines))  # README and the first hour share some
    assert len(lines) >= 10
    split = doc_commands.words(lines, tmp_path)
    for line, (program, name, *rest) in zip(lines, split, strict=True):
        assert program == "perfrun", line
        rest = [word.replace("num_trials=5", "num_trials=2") for word in rest]
        pairs = ["--max_pairs=6"] if name == "ab" else []
        done = subprocess.run(
            [sys.executable, "-m", "perfrun", name, *pairs, *rest],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in STATUSES.get(name, {0}), (line, done.stdout, done.stderr)
        assert done.stdout, line
