"""`perfrun init`: write a first class, a suite and a schedule for this machine, ready to run."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfrun.errors import UsageError
from perfrun.launchers.launcher import WORKER
from perfrun.options.flags import PYTHON_VARIABLE
from perfrun.options.parsers import CommandParser, shown
from perfrun.shown import write_lines, write_prose
from perfrun.summary.result_folder import safe_name, write_whole

_CLASS = '''\
import random

from perfrun import Benchmark


class Sorting(Benchmark):
    def million_numbers(self):
        """Sort a million numbers."""
        numbers = [random.random() for _ in range(1_000_000)]
        self.measure(lambda: sorted(numbers), items_per_step=len(numbers), item="number")
'''
_SUITE = """\
# What `perfrun nightly suite.toml` runs; docs/guides/nightly.md explains every key.
# Relative paths begin at this file.
name = {name}
workspace = "workspace"
python_path = ["."]
trials = 5

[[methods]]
name = "sorting.Sorting.million_numbers"
"""
_ENVIRONMENT = """
[[environments]]
name = "default"
python = {python}
"""
_CRON = """\
# Every night at one. {add}
0 1 * * * {command} >{report} 2>>{log}
"""
_SERVICE = """\
[Unit]
Description=perfrun nightly of {name}
# These limits end the restarts of a night that keeps crashing.
StartLimitIntervalSec=1h
StartLimitBurst=3

[Service]
Type=oneshot
ExecStart={command}
# A night that was killed continues; a night that found a failure (status 1) has ended.
Restart=on-abnormal
RestartSec=30
KillMode=mixed
TimeoutStopSec=90
# A trial that is killed for lack of memory is a result and does not end the night.
OOMPolicy=continue
"""
_TIMER = """\
[Unit]
Description=perfrun nightly of {name}, every night

[Timer]
OnCalendar=*-*-* 01:00:00
# A night that was missed while the machine was off runs as soon as it is back.
Persistent=true
AccuracySec=1min

[Install]
WantedBy=timers.target
"""
_EPILOG = """\
It writes sorting.py, suite.toml and a folder `schedule` with a line for cron and units for systemd,
with the paths of this machine, and prints the commands that come next. Nothing is scheduled yet.

Exit status: 0, or 2 when nothing was written. All of it is in docs/reference/cli.md.
"""


def parser() -> CommandParser:
    """Return the parser of the flags of `perfrun init`."""
    about = "Write a first benchmark class, a suite and a schedule for this machine."
    made = CommandParser("perfrun init", about, _EPILOG, "perfrun init [FOLDER] [flags]")
    made.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="default: this one")
    python = f"interpreter of the nightly trials (default: ${PYTHON_VARIABLE}, or perfrun's own)"
    made.flag("--python", "FILE", python)
    made.switch("--overwrite", "replace files of these names that are there")
    return made


def init_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun init`. Raises UsageError before anything is written."""
    given = parser().parse_args(list(argv))
    folder = Path(given.folder).absolute()
    if not str(folder).isprintable():
        raise UsageError(f"perfrun init: {shown(str(folder))}: no schedule can name this folder")
    files = _files(folder, _python(given.python))
    there = [name for name in files if os.path.lexists(folder / name)]
    if there and not given.overwrite:
        raise UsageError(
            f"perfrun init: {', '.join(there)} in {folder}: is there already, and nothing was "
            "written; name another folder, or add --overwrite"
        )
    try:
        (folder / "schedule").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_whole(folder / name, text)
    except OSError as error:
        raise UsageError(f"perfrun init: {folder}: {error.strerror or error}") from None
    written, *steps = _next_steps(folder, files)
    write_prose([written])
    write_lines(steps)  # commands stay whole
    return 0


def _python(named: str | None) -> str | None:
    """Return the absolute path of the interpreter that the nights use; None for perfrun's own."""
    text = named or os.environ.get(PYTHON_VARIABLE)
    path = shutil.which(text) if text else None
    if text and path is None:
        raise UsageError(f"perfrun init: --python={shown(text)}: is no program")
    return os.path.abspath(path) if path else None  # noqa: PTH100 - a venv's link stays


def _files(folder: Path, python: str | None) -> Mapping[str, str]:
    """Return the text of each file by its name."""
    name = safe_name(folder.name)
    command = [*_perfrun(), "nightly", "--quiet", str(folder / "suite.toml")]
    suite = _SUITE.format(name=_toml(name))
    cron = _CRON.format(
        add=f"Add it with: {_add_to_cron(folder)}",
        command=_cron(command),
        report=_cron([str(folder / "last-night.md")]),
        log=_cron([str(folder / "nightly.log")]),
    )
    return {
        "sorting.py": _CLASS,
        "suite.toml": suite + (_ENVIRONMENT.format(python=_toml(python)) if python else ""),
        "schedule/crontab": cron,
        f"schedule/perfrun-{name}.service": _SERVICE.format(name=name, command=_systemd(command)),
        f"schedule/perfrun-{name}.timer": _TIMER.format(name=name),
    }


def _perfrun() -> list[str]:
    """Return the words that start this perfrun, whatever the PATH of a schedule is."""
    script = Path(sys.executable).with_name("perfrun")
    if script.is_file():
        return [str(script)]
    return [sys.executable, str(WORKER.parent / "benchmark.py")]


def _cron(words: Sequence[str]) -> str:
    """Quote words for a line of cron, which ends a command at `%`."""
    return shlex.join(words).replace("%", "\\%")


def _systemd(words: Sequence[str]) -> str:
    """Quote words for `ExecStart`; see systemd.service(5), "Command lines"."""
    doubled = (
        word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
        for word in words
    )
    return " ".join(f'"{word}"' for word in doubled)


def _toml(text: str) -> str:
    """Quote a text for TOML; what cannot be printed is not in it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _add_to_cron(folder: Path) -> str:
    return f"(crontab -l; cat {shlex.quote(str(folder / 'schedule/crontab'))}) | crontab -"


def _next_steps(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Return what was written, and the commands that come next, as they can be pasted."""
    place = [] if folder == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    service, timer = (
        shlex.quote(str(folder / name)) for name in files if name.endswith((".service", ".timer"))
    )
    if Path("/run/systemd/system").is_dir():
        manager = "systemctl" if getpass.getuser() == "root" else "systemctl --user"
        nightly = [f"{manager} link {service}", f"{manager} enable --now {timer}"]
    elif shutil.which("crontab"):
        nightly = [_add_to_cron(folder)]
    else:
        nightly = [f"# neither systemd nor cron runs here: {folder / 'schedule'} has both"]
    steps = (
        ("Run the class:", ["perfrun run sorting.py"]),
        ("Look at the suite, and run it:", ["perfrun nightly suite.toml --check"]),
        ("", ["perfrun nightly suite.toml"]),
        ("Every night:", nightly),
    )
    lines = [f"Written to {folder}: {', '.join(files)}"]
    lines += [f"    {line}" for line in place]
    for title, commands in steps:
        lines += [title] if title else []
        lines += [f"    {command}" for command in commands]
    return lines
