"""The flags of a run: PerfZero's with PerfZero's meaning, and perfrun's own.

Prefixes of a flag work where only one of PerfZero's flags begins so; perfrun's own flags never make
a prefix of PerfZero's ambiguous.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from perfrun import __version__
from perfrun.errors import UsageError
from perfrun.options.parsers import (
    ALIKE,
    ALLOCATORS,
    KINDS,
    HelpFormatter,
    nearest,
    value_missing,
)

PYTHON_VARIABLE = "PERFRUN_PYTHON"

# (name, default, GCP-only, help), in PerfZero's order, which is that of benchmark_info.flags.
PERFZERO: tuple[tuple[str, Any, bool, str], ...] = (
    ("use_cached_site_packages", False, False, "use checkouts as they are where no hash is given"),
    ("gcs_downloads", None, False, "old name of --data_downloads, done first"),
    (
        "git_repos",
        None,
        False,
        "url[;branch[;hash]],... to check out under WORKSPACE/site-packages",
    ),
    ("benchmark_num_trials", 1, False, "how often to go through all methods (default 1)"),
    (
        "benchmark_methods",
        [],
        False,
        "module.Class.method, module.Class:method or module.Class.filter:REGEX,...",
    ),
    ("ml_framework_build_label", None, False, "copied to the summary"),
    ("execution_label", None, False, "copied to the summary"),
    ("platform_name", None, False, "copied to the summary"),
    ("system_name", None, False, "copied to the summary"),
    ("output_gcs_url", None, True, ""),
    ("scratch_gcs_url", None, True, ""),
    ("bigquery_project_name", None, True, ""),
    ("bigquery_dataset_table_name", None, True, ""),
    ("python_path", None, False, "checkouts to import from, before installed packages"),
    ("workspace", "workspace", False, "folder for checkouts and results (default ./workspace)"),
    ("root_data_dir", "/data", False, "folder for data sets (default /data)"),
    ("data_downloads", None, False, "url[;path][;sha256=HEX],... to have under ROOT_DATA_DIR"),
    ("gcloud_key_file_url", "", True, ""),
    ("debug", False, False, "log at DEBUG level in the worker"),
    ("profiler_enabled_time", None, False, "begin:end,... seconds in which to record a profile"),
    ("execution_id", None, False, "name of the result folder instead of the local time"),
    ("result_upload_methods", None, False, "module.function,... called with each summary"),
    ("tpu_parameters", None, True, ""),
    ("perfzero_constructor_args", "", False, "JSON object: more keywords for the constructor"),
    ("benchmark_class_type", None, False, "tf_benchmark: construct with those keywords only"),
)

# (name, placeholder, help) each; without a placeholder it is a switch.
_REPETITION = (
    ("precision", "PERCENT", "run trials until each median is known to so much (1%%, 0.01)"),
    ("max_trials", "N", "with --precision: most trials of a method (default 30)"),
    ("time_budget", "SECONDS", "with --precision: time for all trials (also 20m, 1h)"),
    ("max_reruns", "N", "disturbed trials to re-run a method (default 0; 2 with --precision)"),
    ("seed", "N", "of the order of trials within a round (default: random, recorded)"),
)
_OWN = (
    (
        "python",
        "FILE",
        f"interpreter under test (default: ${PYTHON_VARIABLE}, or perfrun's own)",
    ),
    (
        "env",
        "NAME=VALUE",
        "environment variable of the trials, besides those inherited; repeatable, recorded",
    ),
    (
        "allocator",
        "NAME",
        f"what gives trials memory: {', '.join(ALLOCATORS)} (retain: glibc keeps freed memory)",
    ),
    ("timeout", "SECONDS", "end a trial after so long (default 86400; 0 = never)"),
    ("format", "table|json", "what to print on stdout"),
    ("quiet", "", "print nothing but errors; the results are in the workspace"),
    ("verbose", "", "print all findings about each trial, and its folder"),
    ("metrics", "all|REGEX", "metrics of the table (default: three a method)"),
    ("print_perfzero_summary", "", "print PerfZero's three JSON documents when the run ends"),
    ("fail_on_bounds", "", "a metric out of bounds counts as a failure"),
    ("allow_empty", "", "a run without methods is a success"),
    ("resume", "", "go on with the last unfinished run of the same flags in this workspace"),
    ("baseline", "NAME", "compare with this baseline when the run has ended (perfrun baseline)"),
    (
        "store",
        "URL|FILE",
        "index for the results: a file or postgresql+psycopg://... (default: the workspace's)",
    ),
    ("profile", "KIND,...", f"profile each method in one more trial a kind: {', '.join(KINDS)}"),
    ("profile_scope", "timed|method|process", "what a profile records (default timed: the steps)"),
    ("flagfile", "FILE", "read flags from a file, one a line (absl's format)"),
)
_CONTAINER = (
    ("image", "NAME", "run each trial in a fresh container of this image (name, name@digest, id)"),
    ("image_python", "FILE", "interpreter in the image (default: its PERFRUN_PYTHON, or python3)"),
    ("trial_network", "NAME", "network of a trial: bridge, or a name (default: none)"),
    ("cpuset", "LIST", "processors of a trial, e.g. 0,2-3"),
    ("memory", "SIZE", "memory of a trial, none of it swapped, e.g. 4g"),
    ("shm_size", "SIZE", "size of its /dev/shm (default 2g)"),
    ("gpus", "WHICH", "GPUs of a trial: all, a number, or device=ID,..."),
    ("pids_limit", "N", "processes and threads of a trial (default 4096)"),
)

_OWN_FILES = """\
Run the methods of your own file, or one of them:
  perfrun run sorting.py
  perfrun run sorting.py::Sorting.million_numbers --benchmark_num_trials=5
"""
_EXAMPLES = """\
Flags of the benchmark itself follow `--`:
  perfrun --benchmark_methods=pkg.mod.Class.method -- --batch_size=8
List what can be run:
  perfrun list --git_repos='https://host/repo.git;main' --python_path=repo

Exit status: 0 all methods ran, 1 a method did not pass, 2 wrong usage, 3 internal error,
130 interrupted. All flags are explained in docs/reference/cli.md.
"""
_LIST_EPILOG = """\
The methods of your own file, of checkouts, of an installed package:
  perfrun list sorting.py
  perfrun list --git_repos='https://host/repo.git;main' --python_path=repo
  perfrun list benchmarks.python

Exit status: 0, or 1 when no method was found and a module cannot be imported, 2 wrong usage. All
of it is in docs/reference/cli.md.
"""
_DOCTOR_EPILOG = """\
Exit status: 0, or 1 when something is missing that the run cannot do without, 2 wrong usage. All
of it is in docs/guides/doctor.md.
"""
COMMANDS = {  # name: (arguments, description, what follows the flags)
    "run": (
        "[FILE.py[::Class.method]|FOLDER ...] [flags] [-- its flags]",
        "Run benchmark methods, each trial in a fresh process, and record the results.\n\n"
        + _OWN_FILES.rstrip(),
        _EXAMPLES,
    ),
    "list": (
        "[package | module | module.Class | FILE.py | FOLDER/ ...] [flags]",
        "Print the benchmark methods of packages, modules or classes.",
        _LIST_EPILOG,
    ),
    "doctor": (
        "[--for=KIND,...] [flags of the run]",
        "Print what this machine offers and lacks for benchmarking.",
        _DOCTOR_EPILOG,
    ),
}
# Words of other tools for the same thing, which are not like it.
_MEANT = {
    **dict.fromkeys(("n", "trials", "runs", "repeat", "repeats"), "benchmark_num_trials"),
    **dict.fromkeys(("o", "out", "output_dir"), "workspace"),
    **dict.fromkeys(("q", "silent"), "quiet"),
    **dict.fromkeys(("k", "filter", "benchmark"), "benchmark_methods"),
    "json": "format=json",
    "docker": "image",
}
# perfrun's own flags that are also the beginning of one of PerfZero's.
_LIKE_A_PREFIX = ("--python", "--profile")


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are UsageErrors of one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(value_missing(message, self))


def help_command(_argv: Sequence[str]) -> int:
    """Print all commands and the flags of a run, and return the exit status."""
    from perfrun.options.commands import overview

    made = parser()
    made.usage = f"{made.usage}\n       perfrun COMMAND ..."
    made.description = overview()
    made.epilog = _OWN_FILES + _EXAMPLES
    made.print_help()
    return 0


def parser(command: str = "run") -> argparse.ArgumentParser:
    """Return the parser of a command that takes the flags of a run."""
    prog = f"perfrun {command}"
    usage, description, epilog = COMMANDS[command]
    made = _Parser(
        prog=prog,
        usage=f"{prog} {usage}",
        description=description,
        epilog=epilog,
        formatter_class=HelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"perfrun {__version__}")
    if command in ("run", "list"):
        made.add_argument("names", nargs="*", help=argparse.SUPPRESS)
    if command == "list":
        text = "show what each method costs here, by earlier trials: time, noise, trials for 5 %%"
        made.add_argument("--cost", action="store_true", help=text)
    if command == "doctor":
        made.add_argument(
            "--for",
            dest="names",
            action="append",
            metavar="KIND",
            help="kinds of run to be judged for: local, container, compose, gpu, nightly",
        )
    perfzero = made.add_argument_group("what to run (PerfZero's flags)")
    gcp = made.add_argument_group("PerfZero's Google Cloud flags: accepted when empty")
    for name, default, is_gcp, text in PERFZERO:
        group = gcp if is_gcp else perfzero
        option: dict[str, Any] = {"help": text or argparse.SUPPRESS, "default": default}
        if default is False:
            option["action"] = "store_true"
        elif name == "benchmark_methods":
            option.update(action="append", metavar="METHODS")
        else:
            option["metavar"] = "N" if name == "benchmark_num_trials" else "TEXT"
        group.add_argument(f"--{name}", **option)
    for title, flags in (
        ("how often and in which order (perfrun's own flags)", _REPETITION),
        ("how to run it (perfrun's own flags)", _OWN),
        ("each trial in a container of its own", _CONTAINER),
    ):
        group = made.add_argument_group(title)
        for name, metavar, text in flags:
            option = {"metavar": metavar} if metavar else {"action": "store_true"}
            if name == "env":
                option["action"] = "append"
            group.add_argument(f"--{name}", help=text, **option)
    return made


def complete_prefix(word: str) -> str:
    """Return the flag in full when only one of PerfZero's flags begins with the word."""
    name, equals, value = word.partition("=")
    if not name.startswith("--") or name in _LIKE_A_PREFIX:
        return word
    fits = [f"--{flag}" for flag, *_ in PERFZERO if f"--{flag}".startswith(name)]
    return f"{fits[0]}{equals}{value}" if len(fits) == 1 and len(name) > 2 else word


def flags_of_a_run(
    words: Sequence[str], made: argparse.ArgumentParser
) -> tuple[list[str], list[str]]:
    """Return the words of a command and the flags of a run, each in one word with its value.

    The parser of a command, `made`, does not know these flags: of `--timeout 5` it would leave a 5
    behind, and take it for a word of its own.
    """
    flags = parser("run")._option_string_actions
    own: list[str] = []
    common: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, _ = complete_prefix(word).partition("=")
        action = None if name in made._option_string_actions else flags.get(name)
        if action is None:
            own.append(word)
        elif equals or action.nargs is not None or (value := next(rest, None)) is None:
            common.append(word)
        elif value.startswith("-"):  # the flag has no value, which its own parser says
            common += [word, value]
        else:
            common.append(f"{word}={value}")
    return own, common


def unknown_flag(
    word: str, made: argparse.ArgumentParser, also: argparse.ArgumentParser | None = None
) -> str:
    """Return the message about a word that is no flag, with the nearest flag.

    `also` reads the flags that a command has besides those of a run.
    """
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return f"{word!r} is not a flag; flags begin with -- and flags of the benchmark follow --"
    actions = [*made._actions, *(also._actions if also else ())]
    known = [option.lstrip("-") for action in actions for option in action.option_strings]
    bare = name.lstrip("-")  # dashes would count as alike
    near = _MEANT.get(bare) or nearest(bare, known, ALIKE)
    hint = f"; did you mean --{near}?" if near else ""
    return f"unknown flag {name}{hint} (flags of the benchmark itself follow --)"
