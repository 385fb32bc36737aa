"""Names of models in any framework: the error of a wrong one, and the list by library."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from perfrun import SetupError

PLAIN = "plain"  # names without a library, in a list of all
_FAMOUS = ("resnet50", "efficientnet_b0", "vit_b_16", "bert_base", "gpt2")
_SHOWN = 5

Names = Callable[[], Iterable[str]]


def unknown_model(name: str, names: Iterable[str], framework: str, catalogue: str) -> SetupError:
    """Return the error of an unknown name: one line with the nearest names, or with a few.

    `catalogue` is the module that prints all names.
    """
    known = sorted(names)
    spellings = {known_name.lower(): known_name for known_name in known}
    near = [spellings[word] for word in difflib.get_close_matches(name.lower(), spellings, n=3)]
    if near:
        *most, last = near
        hint = f"did you mean {', '.join(most)} or {last}?" if most else f"did you mean {last}?"
    else:
        famous = [each for each in known if each.rpartition(":")[2] in _FAMOUS]
        some = list(dict.fromkeys((*famous, *known)))[:_SHOWN]
        hint = f"there are {', '.join(some)} and more: python -m {catalogue} prints all"
    return SetupError(f"there is no model {name} for {framework}; {hint}")


def print_names(libraries: Mapping[str, Names], catalogue: str, argv: Sequence[str]) -> int:
    """Print names as `model` takes them, a line each, of all libraries or of those in `argv`.

    For a library that is not installed, a line goes to standard error; the status is 1 when it was
    asked for, or when there is no other.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {catalogue}", description="Print the names that the knob `model` takes."
    )
    known = ", ".join(libraries)
    parser.add_argument("library", nargs="*", help=f"{known}; none of them: all")
    wanted = parser.parse_args(argv).library
    for library in wanted:
        if library not in libraries:
            parser.error(f"there is no library {library}; there are {known}")
    failed = 0
    for library in wanted or libraries:
        try:
            lines = [f"{name}\n" for name in libraries[library]()]
        except SetupError as error:
            failed += 1
            sys.stderr.write(f"{library}: {error}\n")
        else:
            if not _written(lines):
                return 0
    return int(failed > 0 if wanted else failed == len(libraries))


def _written(lines: Iterable[str]) -> bool:
    """Print; return False where the reader, such as `head`, has closed the pipe."""
    try:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # Python flushes once more at its end
        return False
    return True
