"""`perfrun completion bash|zsh|fish`: a script by which a shell completes commands and flags.

It is made from the parsers of the commands: the one that prints a command's help is the one that
reads its words. shtab writes the script, so no shell starts perfrun for a press of a key.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import re
import sys
from collections.abc import Iterator, Sequence

from perfrun.errors import UsageError
from perfrun.options.commands import COMMANDS
from perfrun.options.flags import COMMANDS as WITH_FLAGS_OF_A_RUN
from perfrun.options.flags import parser as run_parser
from perfrun.options.parsers import ALLOCATORS, KINDS, CommandParser, parse_word

_SHELLS = ("bash", "zsh", "fish")
# Their flags are their own and those of a run.
_ARMS = ("ab", "versus", "bisect", "explain", "dlbs")
_VALUES = {"allocator": ALLOCATORS, "profile": KINDS}
_WORDS = re.compile(r"[a-z_]+(?:\|[a-z_]+)+")  # a placeholder that names all values: table|json
_FOLDERS = ("workspace", "root_data_dir", "python_path")
# bash takes the `=` of `--flag=value` for a word of its own, which shtab does not expect.
_EQUALS_IN_BASH = """
_perfrun_without_equals() {
  local -a words=()
  local i cword=$COMP_CWORD
  for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
    if [[ ${COMP_WORDS[i]} != "=" ]]; then
      words+=("${COMP_WORDS[i]}")
    elif ((i == COMP_CWORD)); then
      words+=("")
    elif ((i < COMP_CWORD)); then
      ((cword--))
    fi
  done
  local COMP_WORDS=("${words[@]}") COMP_CWORD=$cword
  _shtab_perfrun "$@"
}
complete -o filenames -F _perfrun_without_equals perfrun
"""
_EPILOG = """\
Load it in the shell that runs now, or for good:
  bash  eval "$(perfrun completion bash)"       in ~/.bashrc
  zsh   eval "$(perfrun completion zsh)"        in ~/.zshrc, after compinit
  fish  perfrun completion fish | source        in ~/.config/fish/config.fish

Exit status: 0, or 2 for another shell.
"""


class _Found(Exception):  # noqa: N818 - it carries a parser out of a command
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser() -> CommandParser:
    """Return the parser of `perfrun completion`."""
    about = "Print the script that completes the words of perfrun in a shell."
    made = CommandParser("perfrun completion", about, _EPILOG)
    made.add_argument("shell", metavar="|".join(_SHELLS), help="the shell that reads the script")
    return made


def completion_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun completion`."""
    given = parser().parse_args(list(argv))
    shell = parse_word(given.shell, "perfrun completion: SHELL", _SHELLS)
    try:
        import shtab  # nobody else needs it
    except ModuleNotFoundError:
        raise UsageError(
            f"perfrun completion: needs the package shtab: {sys.executable} -m pip install shtab"
        ) from None
    script = shtab.complete(whole_parser(), shell)
    sys.stdout.write(script + (_EQUALS_IN_BASH if shell == "bash" else "\n"))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser of all commands and their flags, with what completes each value."""
    whole = argparse.ArgumentParser("perfrun", parents=[_flags_of_a_run()], add_help=False)
    commands = whole.add_subparsers(metavar="COMMAND")
    for name, (_, _, text) in COMMANDS.items():
        parts = [_flags_of_a_run()] if name in _ARMS else []
        made = commands.add_parser(
            name,
            help=text,
            parents=[*parts, parser_of(name)],
            add_help=False,
            conflict_handler="resolve",
        )
        _say_values(made)
    helped = commands.add_parser("help", help="explain a command", add_help=False)
    helped.add_argument("command", choices=list(COMMANDS), help="command")
    _say_values(whole)
    return whole


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser that reads the words of a command."""
    if name in WITH_FLAGS_OF_A_RUN:
        return run_parser(name)
    module, function, _ = COMMANDS[name]
    command = getattr(importlib.import_module(module), function)
    printed = io.StringIO()
    try:
        with _help_caught(), contextlib.redirect_stdout(printed):
            command(["--help"])
    except _Found as found:
        return found.parser
    # Its help is a text, which names the flags of a run that it takes.
    made = _flags_of_a_run()
    named = set(re.findall(r"--\w+", printed.getvalue()))
    for action in list(made._actions):
        if not named & set(action.option_strings):
            made._remove_action(action)
    return made


@contextlib.contextmanager
def _help_caught() -> Iterator[None]:
    """Raise `_Found` in place of printing a help."""

    def found(self: argparse.ArgumentParser, _file: object = None) -> None:
        raise _Found(self)

    original = argparse.ArgumentParser.print_help
    argparse.ArgumentParser.print_help = found  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        argparse.ArgumentParser.print_help = original  # type: ignore[method-assign]


def _flags_of_a_run() -> argparse.ArgumentParser:
    made = run_parser()
    for action in list(made._actions):
        if not action.option_strings:
            made._remove_action(action)
    return made


def _say_values(made: argparse.ArgumentParser) -> None:
    """Tell shtab what completes the value of each flag: words, files, folders."""
    import shtab

    for action in made._actions:
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if action.dest == "names" and not action.option_strings:
            action.help = "a file, a folder, or names of methods"
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif _WORDS.fullmatch(metavar) or action.dest in _VALUES:
            action.choices = list(_VALUES.get(action.dest, ())) or metavar.split("|")
        elif action.dest in _FOLDERS or "DIR" in metavar or metavar == "FOLDER":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif "FILE" in metavar or metavar.endswith(".toml"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
