"""Real shells complete the words of perfrun by the scripts that it prints."""

from __future__ import annotations

import argparse
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from worlds import PATIENCE_S, ROOT

from perfrun.options.commands import COMMANDS
from perfrun.options.completion import parser_of, whole_parser

# What is typed before a tab, and the line after it.
TYPED = {
    "perfrun dete": "perfrun detect ",
    "perfrun detect --can": "perfrun detect --canary ",
    "perfrun run my_o": "perfrun run my_own.py ",
    "perfrun run --format js": "perfrun run --format json ",
    "perfrun ab --precis": "perfrun ab --precision ",
    "perfrun nightly night": "perfrun nightly nightly.toml ",
    "perfrun help bise": "perfrun help bisect ",
}


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    """The scripts of all shells, printed by one process: it imports every command."""
    code = "from perfrun.benchmark import main\n"
    code += "for shell in 'bash', 'zsh', 'fish':\n    main(['completion', shell]); print('<<>>')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return dict(zip(("bash", "zsh", "fish"), done.stdout.split("<<>>\n"), strict=False))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("my_own.py", "nightly.toml", "other.txt"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def shell_in(folder: Path) -> Iterator[Callable[[list[str], str], Callable[[str], str]]]:
    """Start shells in terminals; each returns a function that types and reads until a mark."""
    children = []

    def start(command: list[str], prepare: str) -> Callable[[str], str]:
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.environ.update({"HOME": str(folder), "TERM": "dumb", "PS1": "", "LC_ALL": "C.UTF-8"})
            os.execvp(command[0], command)
        children.append((pid, terminal))

        def typed(text: str) -> str:
            os.write(terminal, text.encode())
            said, end = b"", time.monotonic() + PATIENCE_S
            while b"<<END>>\r\n" not in said and time.monotonic() < end:
                said += os.read(terminal, 65536)
            return said.decode(errors="replace")

        typed(prepare + "; echo '<<''END>>'\n")
        return typed

    yield start
    for pid, terminal in children:
        os.close(terminal)
        os.waitpid(pid, 0)


def completed(typed: Callable[[str], str], text: str) -> str:
    """Return the line that a tab makes of a text, without the blanks between its words."""
    said = typed(text + "\t\n")
    return said.partition("<<")[2].partition(">>")[0]


_SHOW = "perfrun() { printf '%s' '<<perfrun'; printf ' %s' \"$@\"; printf '>>\\n<<''END>>\\n'; }"


def test_bash_completes(
    scripts: dict[str, str],
    folder: Path,
    shell_in: Callable[[list[str], str], Callable[[str], str]],
) -> None:
    (folder / "script").write_text(scripts["bash"])
    typed = shell_in(["bash", "--norc", "--noprofile", "-i"], f"{_SHOW}; source ./script")
    values = {
        "perfrun run --format=js": "perfrun run --format=json ",
        "perfrun run --seed=1 --format=ta": "perfrun run --seed=1 --format=table ",
    }
    for text, line in {**TYPED, **values}.items():
        assert completed(typed, text) == line.rstrip()


def test_zsh_completes(
    scripts: dict[str, str],
    folder: Path,
    shell_in: Callable[[list[str], str], Callable[[str], str]],
) -> None:
    if not shutil.which("zsh"):
        pytest.skip("there is no zsh")
    (folder / "script").write_text(scripts["zsh"])
    prepare = f'autoload -U compinit; compinit -D -u; {_SHOW}; eval "$(cat ./script)"'
    typed = shell_in(["zsh", "-f", "-i"], prepare)
    for text, line in TYPED.items():
        assert completed(typed, text) == line.rstrip()


def test_fish_completes(scripts: dict[str, str], folder: Path) -> None:
    if not shutil.which("fish"):
        pytest.skip("there is no fish")
    (folder / "script").write_text(scripts["fish"])
    lines = "; ".join(f"complete -C '{text}' | head -1 | cut -f1" for text in TYPED)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source ./script; {lines}"],
        cwd=folder, env={**os.environ, "HOME": str(folder)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [line.split()[-1] for line in TYPED.values()]


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    return {flag for action in parser._actions for flag in action.option_strings}


def test_every_command_completes_the_flags_that_it_reads() -> None:
    commands = next(a for a in whole_parser()._actions if a.dest == "==SUPPRESS==")
    assert isinstance(commands.choices, dict)
    assert list(commands.choices) == [*COMMANDS, "help"]
    for name in COMMANDS:
        flags = flags_of(commands.choices[name])
        assert flags >= flags_of(parser_of(name))
        assert "--format" in flags or name in ("completion", "init", "serve", "shard")
