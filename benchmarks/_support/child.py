"""A process that a benchmark starts: its order, its answer, and its end with its parent.

`python child.py ORDER` calls `function(order)` of `module`, both named by the order, a JSON file.
It runs in the interpreter of the benchmark and with its import path. `import perfrun` works in it
as it does in the benchmark, wherever the runner has found that package.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1  # prctl(2)


PROGRAM = Path(__file__).resolve()


def write_order(path: Path, order: Mapping[str, Any]) -> None:
    """Write a child's order: its task and its import path."""
    perfrun = sys.modules.get("perfrun")
    known = {
        "parent": os.getpid(),
        "import_path": [os.path.abspath(entry) for entry in sys.path],  # noqa: PTH100 ("" is ".")
        "perfrun": getattr(perfrun, "__file__", None),
    }
    path.write_text(json.dumps({**order, "child": known}), encoding="utf-8")


def read_order(path: Path) -> dict[str, Any]:
    """Read the order in the child, and take over the parent's import path."""
    order: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    known = order.pop("child")
    sys.path[:] = known["import_path"]
    if known["perfrun"] and "perfrun" not in sys.modules:
        _adopt("perfrun", Path(known["perfrun"]))
    return order


def end_with_parent() -> None:
    """Let the kernel kill this process when the one that started it ends (Linux only)."""
    parent = os.getppid()
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended in the meantime
        os.kill(os.getpid(), signal.SIGKILL)


def new_folder(parent: Path, name: str) -> Path:
    """Make a new folder and return its path: `name`, or `name_2` and so on where that exists."""
    for number in range(1, 1_000_000):
        folder = parent / (name if number == 1 else f"{name}_{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{parent}/{name} is taken a million times")


def write_answer(path: Path, answer: Mapping[str, Any]) -> None:
    """Write a child's answer atomically."""
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(answer), encoding="utf-8")
    aside.rename(path)


def read_answer(path: Path) -> dict[str, Any] | None:
    """Return a child's answer, or None when it has given none."""
    try:
        answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return answer


def ending(returncode: int) -> str:
    """Return in words how a process ended, from its exit status as `subprocess` gives it."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def last_line(path: Path) -> str:
    """Return the last line of a log that is not blank."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _adopt(name: str, file: Path) -> None:
    """Import a package from a file whose folder is not on the import path, as the runner does."""
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(file.parent)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def main() -> int:
    """Carry out an order."""
    end_with_parent()
    order = read_order(Path(sys.argv[1]))
    getattr(importlib.import_module(order["module"]), order["function"])(order)
    return 0


if __name__ == "__main__":
    sys.exit(main())
