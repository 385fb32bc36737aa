"""Every command of README and docs is one that the program takes.

Those of the first hour run, and those that read results; the others are parsed, and say why.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import doc_commands
import pytest
from doc_commands import PAGES, ROOT

from perfrun import benchmark
from perfrun.changes.bisect import parse_bisect
from perfrun.changes.bisect_results import Between, Given
from perfrun.compare.ab import parse_ab
from perfrun.compare.baseline_command import ACTIONS
from perfrun.dlbs.command import parse_experiment
from perfrun.errors import PerfrunError
from perfrun.explain.command import parse_explain
from perfrun.image.setup_flags import make_parser as image_parser
from perfrun.options.command_line import parse as parse_run
from perfrun.options.commands import COMMANDS
from perfrun.versus.options import parse_versus
from tests.summaries import summary, trials, write


def between_results(given: Given) -> Between:
    """Return a search for the flags that stand beside two results, which no page has."""
    words = ("--git_repos=file:///r/one.git", "--benchmark_methods=pkg.mod.Class.method")
    return Between(words=(*words, *given.common), good="one=0123abcd", bad="one=89abcdef")


# All words of these are parsed, values too; they run benchmarks, or look at the machine.
PARSERS: dict[str, Callable[[list[str]], Any]] = {
    "ab": parse_ab,
    "bisect": lambda words: parse_bisect(words, between_results),
    "dlbs": parse_experiment,
    "explain": parse_explain,
    "doctor": partial(parse_run, command="doctor"),
    "list": partial(parse_run, command="list"),
    "run": parse_run,
    "selftest": lambda words: parse_run([*words, "--allow_empty"]),
    "versus": parse_versus,
}
# Programs of others; their flags are not ours to check.
OF_OTHERS = {
    "git": "clones from the network",
    "pip": "downloads packages",
    "pipx": "installs perfrun; `make run` does the same by pip in every CI run",
    "snakeviz": "a viewer",
    "tensorboard": "a viewer",
}
MODULES_OF_OTHERS = {"memray", "timeit", "pip", "pstats", "pytest", "venv", "http.server"}
SERVICES = set(re.findall(r"^  (\w+):$", (ROOT / "docker-compose.yml").read_text(), re.MULTILINE))


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


def refusal(words: list[str]) -> str:
    """Return why perfrun would not take these words, or nothing."""
    if words[0] in ("--help", "--version"):
        return ""
    if words[0] == "help" or words[1:] == ["--help"]:
        words = [words[-1] if words[0] == "help" else words[0]]
    name = "run" if words[0].startswith("-") else words[0]
    if name not in COMMANDS:
        return f"{name} is no command"
    if words == [name] or (name == "baseline" and words[1:] in ([one] for one in ACTIONS)):
        return ""  # the name of a command, in a sentence
    if name in PARSERS:
        return refusal_of_values(name, words if words[0].startswith("-") else words[1:])
    with pytest.MonkeyPatch.context() as patched:
        stop_after_parsing(patched)
        try:
            benchmark._command(words)
        except PerfrunError as error:
            return error.line
        except Parsed as parsed:
            return " ".join(parsed.args[0])
    return "was carried out instead of parsed"


def refusal_of_values(name: str, words: list[str]) -> str:
    """Return which flag or value a command that runs benchmarks would refuse, or nothing."""
    given = [word for word in words if not word.endswith("=...")]
    named = ("--benchmark_methods=", "--method=")
    if name in ("run", "ab", "bisect") and all(
        word.startswith("-") and not word.startswith(named) for word in given
    ):
        given.insert(0, "--benchmark_methods=pkg.mod.Class.method")
    try:
        PARSERS[name](given)
    except PerfrunError as error:
        return error.line
    return ""


def fault(words: list[str]) -> str:
    """Return why a command of a page cannot be typed, or nothing."""
    program, *rest = words
    name = program.rpartition("/")[2]
    if name == "perfrun":
        return refusal(rest)
    if name == "make":
        return fault_of_make(rest)
    if name == "docker":
        return fault_of_docker(rest)
    if name.startswith("python"):
        return fault_of_python(rest)
    return "" if name in OF_OTHERS else f"{name} is not known"


def fault_of_make(words: list[str]) -> str:
    """Return the targets that the Makefile lacks."""
    known = set(re.findall(r"^([\w%$()/.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    patterns = {k.replace("$(VENV)", ".venv") for k in known}
    return " ".join(
        w
        for w in words
        if "=" not in w
        and w not in patterns
        and re.sub(r"^\.envs/\w+/", ".envs/%/", w) not in patterns
    )


def fault_of_docker(words: list[str]) -> str:
    """Return what is wrong with a service of ours and the words that it gets, or nothing."""
    images = {*SERVICES, "perfrun/torch"}
    at = next((i for i, word in enumerate(words) if word in images), None)
    if at is None:
        named = words[0] == "compose" and words[1] in ("run", "up") and len(words) > 2
        return "none of the services" if named else ""
    rest = words[at + 1 :]
    return refusal(rest) if rest and "--entrypoint" not in words else ""


def fault_of_python(words: list[str]) -> str:
    """Return why a command of an interpreter cannot be typed, or nothing."""
    if words[0] == "-c" or words == ["-m"] or (words[1:2] and words[1] in MODULES_OF_OTHERS):
        return ""
    if words[0] == "-m" and words[1] in ("perfrun", "perfrun.dlbs"):
        given = [*words[1].split(".")[1:], *words[2:]]
        return refusal(given) if given else ""
    if words[0] == "setup.py":
        return "" if words[1:] == ["--help"] else refusal_of_image(words[1:])
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
    with pytest.MonkeyPatch.context() as patched:
        stop_after_parsing(patched)
        try:
            image_parser().parse_args(words)
        except Parsed as parsed:
            return " ".join(parsed.args[0])
        except (PerfrunError, SystemExit) as error:
            return str(error)
    return ""


def commands(page: Path) -> list[doc_commands.Command]:
    """Return the commands of a page, in its code blocks and in its sentences."""
    return [
        *(c for c in doc_commands.commands(page) if not c.is_synopsis),
        *doc_commands.inline_commands(page),
    ]


def with_interpreters(lines: list[str], folder: Path) -> list[str]:
    """Make the interpreters that the lines name, below the folder; absolute paths move there."""
    found = []
    for line in lines:
        moved = re.sub(
            r"(?<![\w.-])/((?:envs|path)/[\w./-]+|[\w./-]+/bin/python\b)", rf"{folder}/\1", line
        )
        for path in re.findall(r"[\w./-]+/bin/python\b", moved):
            place = folder / path
            assert place.is_relative_to(folder), f"{path} is a path of this machine"
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.symlink_to(sys.executable)
        found.append(moved)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_can_be_typed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("sorting.py", "FILE.py", "keyed/sorting.py", "package/one.py", "other/search.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(OWN_CLASS)
    monkeypatch.chdir(tmp_path)
    lines = [command.line.replace("COMMAND", "compare") for command in commands(page)]
    split = doc_commands.words(with_interpreters(lines, tmp_path), tmp_path)
    assert len(split) == len(lines)
    faults = [f"{line}: {text}" for line, w in zip(lines, split, strict=True) if (text := fault(w))]
    assert faults == []


def python_block(page: Path, start: str) -> str:
    """Return the code block of a page that has this text."""
    found = doc_commands.blocks(page.read_text(encoding="utf-8"))
    return next("\n".join(lines) for kind, lines in found if start in "\n".join(lines))


OWN_CLASS = python_block(ROOT / "README.md", "class Sorting") + "\n"

# What neither of the tests below runs, and why. All of it is parsed, above.
NOT_RUN = {
    **dict.fromkeys(OF_OTHERS, "a program of others"),
    "make": "CI runs the targets that it needs; the others take minutes to hours",
    "docker": "tests/docker/test_compose.py runs the services",
    "python": "a study of minutes to hours, or needs a framework; tests/unit/simulations",
    "run": "a framework, an image or a repository of the reader; tests/integration/test_trials.py",
    "list": "the same; tests/integration/test_listing.py",
    "ab": "takes minutes; tests/integration/test_ab.py",
    "bisect": "takes minutes; tests/integration/test_bisect.py",
    "detect": "with --confirm it takes minutes; tests/integration/test_confirm.py",
    "explain": "takes minutes; tests/integration/test_explain.py",
    "doctor": "of containers; tests/docker/test_doctor.py",
    "incidents": "need some; tests/unit/incidents/test_incidents.py",
    "nodes": "needs results of several; tests/unit/nodes/test_nodes_command.py",
    "nightly": "clones from the network; tests/integration/test_nightly.py",
    "submit": "hosts of the reader; tests/integration/test_fleet.py",
    "fleet": "the same",
    "shard": "the same",
    "replay": "runs a benchmark; tests/integration/test_replay.py",
    "pack": "the same",
    "plot": "draws with libraries of its own; tests/unit/plots/test_plot_command.py",
    "report": "the same; tests/unit/page/test_report.py",
    "selftest": "takes minutes; tests/integration/test_selftest.py",
    "serve": "ends by Ctrl-C; tests/integration/test_serve.py",
    "versus": "needs frameworks; tests/integration/test_versus.py",
}
# A verdict, a finding of doctor, or too short a history: all are answers.
STATUSES = {"compare": {0, 1}, "ab": {0, 1}, "doctor": {0, 1}, "detect": {0, 1, 2}}
FIRST_HOUR = [
    ROOT / "README.md",
    *(ROOT / f"docs/get_started/{name}.md" for name in ("first_hour", "comparing", "nightly")),
]
NOT_IN_FIRST_HOUR = (  # they name an environment or a commit of the reader, or take minutes
    r"/envs/|/path/to/|=[^ ]*;|^(?!perfrun )|OMP_NUM_THREADS|--time_budget=10m"
)
RUN_IN_PROSE = r"perfrun (?:-|help|list |show |init |history |run sorting.py|compare .)"
ON_RESULTS = (  # with --confirm, detect runs pairs
    r"perfrun (baseline|compare|completion|detect(?!.*--confirm)|export|help|history|import|index"
    r"|init|prune|show|--help|--version)\b"
)


def of_first_hour() -> list[str]:
    """Return the commands of README and the first hour that run, each once, in their order."""
    found = []
    for page in FIRST_HOUR:
        for command in commands(page):
            if command.is_inline and not re.match(RUN_IN_PROSE, command.line):
                continue  # the name of a command, in a sentence
            if not re.search(NOT_IN_FIRST_HOUR, command.line):
                found.append(command.line)
    reference = [
        *commands(ROOT / "docs/reference/cli.md"),
        *commands(ROOT / "docs/guides/writing.md"),
    ]
    own = r"perfrun (run sorting.py|list (--cost )?(sorting.py|benchmarks))(?!.*milion)"
    found += [command.line for command in reference if re.match(own, command.line)]
    return list(dict.fromkeys(found))


def on_results() -> list[str]:
    """Return the commands of all pages that only need results, each once."""
    found = [
        command.line
        for page in PAGES
        for command in commands(page)
        if re.match(ON_RESULTS, command.line)
        and not (command.is_inline and re.fullmatch(r"perfrun \w+( set)?", command.line))
    ]
    last = ("perfrun import", "perfrun baseline rm")  # they change what there is
    return sorted(dict.fromkeys(found), key=lambda line: (line.startswith(last), line))


def test_what_does_not_run_has_a_reason() -> None:
    run = {*of_first_hour(), *on_results()}
    used = set()
    for page in PAGES:
        for command in commands(page):
            program, *rest = command.line.split()
            name = re.sub(r"^python3$", "python", program.rpartition("/")[2])
            if name == "perfrun":
                if rest[1:] == ["--help"]:
                    continue  # tests/integration/test_imports.py asks every command for its help
                name = "run" if rest[0].startswith("-") else rest[0]
                if command.is_inline and " ".join(rest) in (name, "baseline set"):
                    continue  # the name of a command, in a sentence
            if command.line not in run:
                assert name in NOT_RUN, (
                    f"{command.line}: let a test run it, or say here why none does"
                )
                used.add(name)
    assert used == NOT_RUN.keys()
    for reason in NOT_RUN.values():
        for place in re.findall(r"tests/[\w/.]+", reason):
            assert (ROOT / place).exists(), place


METHODS = {
    "sorting.Sorting.million_numbers": "wall_time",
    "benchmarks.python.interpreter.Interpreter.json_round_trip": "wall_time",
    "sorting.Canary.spin": "wall_time",
    "package.module.Class.method": "latency_mean_s",
    "benchmarks.torch.model.Model.inference_batches": "batch_8_total/latency_mean_s",
}
LABELS = "before after BASE NEW night1 night2 base new release models-2026-11-20 models-2026-11-21"
STAND_FOR_OTHERS = {"RESULT": "last", "METHOD": next(iter(METHODS)), "COMMAND": "compare"}


def write_results(folder: Path) -> None:
    """Write what the commands of the pages name: labels, methods, baselines, files."""
    number = 0
    for label in LABELS.split():
        for method, metric in METHODS.items():
            for trial in trials([1.0, 1.01, 1.02], method=method, label=label, metrics={metric: 2}):
                trial["execution_timestamp"] -= (number := number + 1) * 7200
                trial["execution_id"] = f"trial-{number}"
                write(folder / "workspace" / "output", trial)
    write(folder / "workspace" / "output", summary(name="2026-11-22-17-53-30-834960"))
    for copy in ("results", "other", "srv/nights", "old-results"):
        shutil.copytree(folder / "workspace", folder / copy)
    shutil.copytree(folder / "results", folder / "workspace/ab/a")
    one = next((folder / "workspace/output").glob("*/perfzero_summary.json"))
    (folder / "imported").mkdir()
    shutil.copy(one, folder / "imported" / "one-result.json")
    for name in ("before.json", "after.json"):
        shutil.copy(ROOT / "tests/data/foreign/pyperf.json", folder / name)


def test_commands_that_need_only_results_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("good", "NAME", "v1.0", "sorting.py"):
        assert benchmark.main(["baseline", "set", name, "release"]) == 0
    lines = on_results()
    assert len(lines) > 40
    for line, (_, *words) in zip(lines, doc_commands.words(lines, tmp_path), strict=True):
        typed = [STAND_FOR_OTHERS.get(w, w).replace("/srv/", f"{tmp_path}/srv/") for w in words]
        try:
            status = benchmark.main(typed)
        except SystemExit as ended:  # of --help
            status = int(ended.code or 0)
        said = capsys.readouterr()
        assert status in STATUSES.get(words[0], {0}), (line, said)
        assert said.out or said.err, line


@pytest.mark.slow
def test_the_commands_of_the_first_hour_run(tmp_path: Path) -> None:
    """They run in order in one folder, with the files of the pages; steps and trials are fewer."""
    assert python_block(FIRST_HOUR[1], "class Sorting").strip() == OWN_CLASS.strip()
    few = OWN_CLASS.replace("1_000_000", "1_000")
    few = few.replace('item="number")', 'item="number", iterations=3, warmup=1)')
    step = python_block(FIRST_HOUR[2], "key=str").strip()
    keyed = re.search(r"lambda: .*?\)(?=, items)", step)
    assert keyed
    (tmp_path / "keyed").mkdir()
    (tmp_path / "sorting.py").write_text(few)
    (tmp_path / "keyed" / "sorting.py").write_text(
        re.sub(r"lambda: .*?\)(?=, items)", keyed[0], few)
    )
    (tmp_path / "suite.toml").write_text(python_block(FIRST_HOUR[3], "[[methods]]"))
    lines = of_first_hour()
    assert len(lines) >= 20
    split = doc_commands.words(lines, tmp_path)
    for line, (program, name, *rest) in zip(lines, split, strict=True):
        assert program == "perfrun", line
        rest = [re.sub("num_trials=[0-9]", "num_trials=2", word) for word in rest]
        pairs = ["--max_pairs=6"] if name == "ab" else []
        done = subprocess.run(
            [sys.executable, "-m", "perfrun", name, *pairs, *rest],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in STATUSES.get(name, {0}), (line, done.stdout, done.stderr)
        assert done.stdout, line
