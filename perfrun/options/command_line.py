"""Turn the command line into a `RunPlan`. An empty value means unset; errors are found here."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfrun.errors import UsageError
from perfrun.options import plan
from perfrun.options.containment import parse_containment
from perfrun.options.flags import (
    PERFZERO,
    PYTHON_VARIABLE,
    complete_prefix,
    parser,
    unknown_flag,
)
from perfrun.options.parsers import (
    ALLOCATORS,
    FORMATS,
    parse_metrics,
    parse_profile_scope,
    parse_profiler_windows,
    parse_profiles,
    parse_repetition,
    parse_variables,
    parse_word,
    parse_workspace,
    split_at_dashes,
)
from perfrun.options.plan import RunPlan
from perfrun.options.store_address import parse_address
from perfrun.text import redact_words, redacted

DEFAULT_TIMEOUT_S = 24 * 3600.0


def parse(
    argv: Sequence[str], *, command: str = "run", also: ArgumentParser | None = None
) -> RunPlan:
    """Turn the command line into a plan. Raises UsageError; touches nothing.

    `also` is the parser of a command whose own flags are not among these words: one of them that is
    misspelt is.
    """
    own, benchmark_flags = split_at_dashes(_with_flagfiles(argv))
    made = parser(command)
    arguments, unknown = made.parse_known_intermixed_args([complete_prefix(word) for word in own])
    if unknown:
        raise UsageError(unknown_flag(unknown[0], made, also))
    given = vars(arguments)
    _refuse_gcp(given)
    if given["flagfile"]:  # only a prefix of it is left: absl has replaced the whole flag
        raise UsageError("--flagfile: this flag must be written in full")
    selectors = plan.parse_selectors(given["benchmark_methods"])
    repos = plan.parse_repos(given["git_repos"])
    python_path = plan.parse_python_path(given["python_path"])
    workspace = parse_workspace(given["workspace"])
    container = parse_containment(given)
    names = tuple(given.pop("names", None) or ())
    if names or any(item.startswith(".") for item in python_path):
        from perfrun.options import own_files  # most runs name methods and checkouts

        site_packages = str(workspace / "site-packages")
        python_path = tuple(own_files.from_here(python_path, site_packages, repos))
        files: Sequence[own_files.OwnFile] = ()
        if command == "run" and names:
            files, methods = own_files.split_words(names)
            selectors += (*(one for file in files for one in file.selectors), *methods)
            given["benchmark_methods"] = [selector.text for selector in selectors]
            names = ()
        elif command == "list":
            files = [own_files.own_file(name) for name in names if own_files.is_path(name)]
            own_files.check_together(files)
            others = (name for name in names if not own_files.is_path(name))
            names = (*(name for file in files for name in file.names), *others)
        if container:
            own_files.check_shown(files)
        python_path = tuple(dict.fromkeys((*(file.root for file in files), *python_path)))
        given["python_path"] = ",".join(python_path) or given["python_path"]
    if command == "run" and not selectors and not given["allow_empty"]:
        raise UsageError(
            "nothing to run: name a file (`perfrun run FILE.py`), or methods with "
            "--benchmark_methods=module.Class.method (`perfrun list` shows them), or say "
            "--allow_empty"
        )
    num_trials = _count(given["benchmark_num_trials"], given["allow_empty"])
    return RunPlan(
        selectors=selectors,
        num_trials=num_trials,
        repetition=parse_repetition(given, num_trials),
        repos=repos,
        python_path=python_path,
        use_cached_site_packages=given["use_cached_site_packages"],
        workspace=workspace,
        root_data_dir=given["root_data_dir"] or "/data",
        data=(
            *plan.parse_data(given["gcs_downloads"], "--gcs_downloads"),
            *plan.parse_data(given["data_downloads"], "--data_downloads"),
        ),
        execution_id=_folder_name(given["execution_id"]),
        execution_label=given["execution_label"] or None,
        ml_framework_build_label=given["ml_framework_build_label"] or None,
        platform_name=given["platform_name"] or None,
        system_name=given["system_name"] or None,
        constructor_args=plan.parse_constructor_args(given["perfzero_constructor_args"]),
        class_type=given["benchmark_class_type"] or None,
        profiler_windows=parse_profiler_windows(given["profiler_enabled_time"]),
        profiles=parse_profiles(given["profile"]),
        profile_scope=parse_profile_scope(given["profile_scope"], given["profile"]),
        upload_methods=plan.parse_upload_methods(given["result_upload_methods"]),
        debug=given["debug"],
        env=parse_variables(given["env"]),
        allocator=parse_word(given["allocator"], "--allocator", ALLOCATORS),
        container=container,
        python="" if container else _interpreter(given["python"]),
        timeout_s=_timeout(given["timeout"]),
        output_format=parse_word(given["format"], "--format", FORMATS),
        quiet=given["quiet"],
        verbose=given["verbose"],
        with_cost=given.get("cost", False),
        metrics=parse_metrics(given["metrics"]),
        print_perfzero_summary=given["print_perfzero_summary"],
        fail_on_bounds=given["fail_on_bounds"],
        allow_empty=given["allow_empty"],
        resume=given["resume"],
        baseline=given["baseline"] or None,
        store=_store(given["store"], workspace),
        benchmark_flags=tuple(benchmark_flags),
        names=names,
        flags=_recorded_flags(given),
        argv=tuple(redact_words(argv)),
    )


def _with_flagfiles(argv: Sequence[str]) -> list[str]:
    """Replace each `--flagfile` by the content of the file, by absl's rules."""
    own, rest = split_at_dashes(argv)
    if any(word.startswith(("--flagfile", "-flagfile")) for word in own):
        from absl import flags  # only here: it takes 30 ms to import

        try:
            values: Any = flags.FlagValues()
            own = values.read_flags_from_files(own, force_gnu=True)
        except flags.Error as error:
            text = str(error).removeprefix("ERROR:: ")
            raise UsageError(f"--flagfile: {text}") from None
        except UnicodeDecodeError as error:
            raise UsageError(f"--flagfile: a flag file is not UTF-8 text: {error}") from None
        except OSError as error:
            raise UsageError(f"--flagfile: a flag file cannot be read: {error.strerror}") from None
    return [*own, "--", *rest] if rest else list(own)


def _refuse_gcp(given: dict[str, Any]) -> None:
    for name, _, is_gcp, _ in PERFZERO:
        if is_gcp and given[name]:
            raise UsageError(
                f"--{name} needs Google Cloud, which perfrun does not use; leave it empty"
            )


def _count(text: Any, allow_empty: bool) -> int:
    try:
        count = int(text or 1) if text != "0" else 0
    except ValueError:
        raise UsageError(f"--benchmark_num_trials={text}: not a whole number") from None
    if count < 0 or (count == 0 and not allow_empty):
        raise UsageError(f"--benchmark_num_trials={text}: must be 1 or more")
    return count


def _timeout(text: str | None) -> float | None:
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        raise UsageError(f"--timeout={text}: not a number of seconds") from None
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"--timeout={text}: must be 0 (never) or more seconds")
    return seconds or None


def _folder_name(text: str | None) -> str | None:
    if not text:
        return None
    if "/" in text or "\0" in text or text.startswith(".") or len(os.fsencode(text)) > 200:
        raise UsageError(f"--execution_id={text!r}: must be usable as the name of a folder")
    return text


def _interpreter(text: str | None) -> str:
    """Return the absolute path of the interpreter under test.

    Whether it works is tested later, before anything is cloned (`environment.describe`).
    The path is not resolved: a virtual environment's `python` is a link whose place matters.
    """
    named = text or os.environ.get(PYTHON_VARIABLE) or sys.executable
    shown = f"--python={named}" if text else f"{PYTHON_VARIABLE}={named}"
    path = _found(named)
    if path is None:
        raise UsageError(f"{shown}: {_why_not(named)}; name the interpreter of the environment")
    return os.path.abspath(path)  # noqa: PTH100 - Path.absolute would keep `..`


def _found(interpreter: str) -> str | None:
    """Return the path of a program; None when there is none that can be executed."""
    if os.sep not in interpreter:
        from shutil import which  # 3 ms, only for a name that is searched on PATH

        return which(interpreter)
    can_run = os.path.isfile(interpreter) and os.access(interpreter, os.X_OK)  # noqa: PTH113
    return interpreter if can_run else None


def _why_not(interpreter: str) -> str:
    try:
        if Path(interpreter).is_dir():
            return "is a folder"
        return "is not executable" if Path(interpreter).is_file() else "is not there"
    except PermissionError:
        return "lies where this user may not look"
    except OSError as error:  # a name that is too long
        return f"cannot be a file ({error.strerror})"


def _store(text: str | None, workspace: Path) -> str | None:
    """Check the address before anything runs. No connection is made: a server may be down."""
    return text if text and parse_address(text, workspace) else None


def _recorded_flags(given: dict[str, Any]) -> dict[str, Any]:
    """Return the flags to record: PerfZero's that are not None, in their order, then our own.

    Of perfrun's own flags only those that were given are recorded.
    """
    names = [name for name, *_ in PERFZERO]
    recorded = {name: given[name] for name in names if given[name] is not None}
    recorded["benchmark_num_trials"] = int(given["benchmark_num_trials"] or 1)
    recorded.update({k: v for k, v in given.items() if k not in names and v and k != "flagfile"})
    hidden: dict[str, Any] = redacted(recorded)
    return hidden
