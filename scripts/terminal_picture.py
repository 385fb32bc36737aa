"""Run a command in a terminal and draw its last screen as an SVG, for README and docs.

    python scripts/terminal_picture.py docs/assets/result.svg 100 -- perfrun run sorting.py

The command is run as typed, in a pseudo-terminal of so many columns. The picture needs no font from
another server. It needs rich, which perfrun brings.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

# Moves of the cursor and erasures: what was drawn over is not part of the last screen.
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-HJ-lnsu]")


def output_of(command: list[str], columns: int) -> str:
    """Return what a command writes to a terminal of this width."""
    terminal, inside = pty.openpty()
    ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        command, stdin=inside, stdout=inside, stderr=inside, env=environment, close_fds=True
    )
    os.close(inside)
    found = b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        found += read
    process.wait()
    os.close(terminal)
    return found.decode("utf-8", "replace")


def screen(raw: str) -> str:
    """Return the lines that stay: of a line that is written again, what was written last."""
    lines: list[str] = []
    for line in raw.replace("\r\n", "\n").split("\n"):
        kept = _MOVES.sub("", line.split("\r")[-1]).rstrip()
        if kept or (lines and lines[-1]):
            lines.append(kept)
    return "\n".join(lines).strip("\n")


def picture(text: str, columns: int, title: str) -> str:
    """Return an SVG of a text with colours, in the reader's own fixed-width font."""
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text), soft_wrap=False)
    drawn = console.export_svg(title=title, theme=MONOKAI, unique_id="perfrun")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    return drawn.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


def main() -> int:
    """Draw the picture that the command line asks for."""
    path, columns, command = sys.argv[1], int(sys.argv[2]), sys.argv[4:]
    shown = f"$ {shlex.join(command)}\n{screen(output_of(command, columns))}"
    Path(path).write_text(picture(shown, columns, "perfrun"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
