"""Commands of README and docs, found in code blocks and in prose, and split as a shell does."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_PROSE = "prose"
_SHELL = ("", "fence", "sh", "bash", "console")  # "fence" names no language
_ASSIGNMENTS = re.compile(r"(?:[A-Z_]+=\S* )*")
_PROGRAMS = re.compile(
    r"(?:perfrun|make|docker|git|pip|pipx|snakeviz|tensorboard"
    r"|(?:\S*/)?python3?|\S*/bin/perfrun)(?: |$)"
)
# `perfrun versus: not equal: ...` is printed, not typed.
_PRINTED = re.compile(r"\S+(?: [a-z]+)?:(?: |$)|snakeviz web server ")


@dataclass(frozen=True)
class Command:
    """One command of a page, as typed."""

    page: Path
    line: str
    is_inline: bool = False  # in prose or in a table

    @property
    def is_synopsis(self) -> bool:
        """True for a line that stands for many: `perfrun list [package | module] [flags]`."""
        return bool(re.search(r"\s\[[^=]*\]|\s\.\.\.(?: |$)|\s\w+\|\w", self.line))


def blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each code block: the language of its fence (empty when indented), and its lines."""
    return ((kind, lines) for kind, lines in _parts(text) if kind != _PROSE)


def _parts(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield code blocks, and the lines between them one by one."""
    kind: str | None = None
    found: list[str] = []
    blank = True
    for line in [*text.split("\n"), "end"]:
        fence = re.match(r"```(\w*)\s*$", line)
        if kind is None and fence:
            kind, found = fence[1] or "fence", []
        elif kind not in (None, "indented"):
            if fence:
                yield str(kind), found
                kind = None
            else:
                found.append(line)
        elif line.startswith("    ") and (blank or kind == "indented"):
            if kind is None:
                kind, found = "indented", []
            found.append(line[4:])
        elif kind == "indented" and line.strip():
            yield "", found
            kind = None
        elif kind == "indented":
            found.append("")
        if kind is None and not fence:
            yield _PROSE, [line]
        blank = not line.strip()


def commands(page: Path) -> Iterator[Command]:
    """Yield the commands of a page, lines that go on joined to one."""
    for kind, lines in blocks(page.read_text(encoding="utf-8")):
        if kind not in _SHELL:
            continue
        prompted = any(line.startswith("$ ") for line in lines)
        for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).split("\n"):
            if prompted and not line.startswith("$ "):
                continue
            typed = line.removeprefix("$ ")
            start = _ASSIGNMENTS.match(typed)
            rest = typed[start.end() :] if start else typed
            if _PROGRAMS.match(rest) and not _PRINTED.match(rest):
                yield Command(page=page, line=rest.strip())


def inline_commands(page: Path) -> Iterator[Command]:
    """Yield the commands in the prose and the tables of a page; a program's name alone is none.

    What stands for the reader's own words is filled in or left out: `<word>`, `[WORD]`, `...`.
    """
    parts = _parts(page.read_text(encoding="utf-8"))
    lines = [" ".join(one) if kind == _PROSE else "" for kind, one in parts]
    if page.name == "messages.md":  # the first cell of a row is a message, not a command
        lines = [re.sub(r"^\| (?:`` .*? ``|`[^`]*`) \|", "|", line) for line in lines]
    for found in re.findall(r"(?<!`)`((?:[^`\n]|\n(?!\n))+)`(?!`)", "\n".join(lines)):
        typed = " ".join(found.replace("\\|", "|").split())
        typed = re.sub(r" (?:\[[^]=]*\]|[.]{3})(?= |$)", "", typed).replace("<word>", "sorting.py")
        typed = re.sub(r"<(\w+)>", r"\1", typed)
        start = _ASSIGNMENTS.match(typed)
        rest = typed[start.end() :] if start else typed
        if _PROGRAMS.match(f"{rest} ") and " " in rest and not _PRINTED.match(rest):
            yield Command(page=page, line=rest, is_inline=True)


def words(lines: list[str], folder: Path) -> list[list[str]]:
    """Return the words of each line, as bash makes them, up to a redirection or pipe."""
    typed = [line if "$(" in line else re.split(r" (?:2?>|[|] |&& )", line)[0] for line in lines]
    script = "".join(f"set -- {line}\nprintf '%s\\0' \"$@\" $'\\n'\n" for line in typed)
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, capture_output=True, text=True, check=True
    )
    return [found.split("\0")[:-1] for found in done.stdout.split("\n\0")[:-1]]
