"""`perfrun index`: bring the index over summaries up to date, and say what it holds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.arguments import CommandParser
from perfrun.errors import UsageError
from perfrun.garbage import no_collection
from perfrun.store.address import Address, parse_address

if TYPE_CHECKING:
    from perfrun.store.index import Refreshed, Store
    from perfrun.store.query import BadFile, Counts

_EPILOG = """\
DIR is a workspace, an output folder, a result folder or a summary; PerfZero's are read as they are.
Summaries that cannot be read are named and left out.

Exit status: 0, or 1 when there is no summary that can be read. All of it is in docs/store.md.
"""


class Parser(CommandParser):
    """argparse for commands that read an index: their common flags, errors in one line."""

    def __init__(self, command: str, **options: Any) -> None:
        super().__init__(
            prog=f"perfrun {command}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **options,
        )
        self.add_argument(
            "--workspace", metavar="DIR", help="whose results are read (default ./workspace)"
        )
        self.add_argument(
            "--store",
            metavar="URL|FILE",
            help="index to use instead of WORKSPACE/perfrun.db: a file or postgresql+psycopg://...",
        )
        self.add_argument("--format", metavar="table|json", help="what to print on stdout")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse, empty meaning unset. Raises UsageError."""
        given = self.parse_args(list(argv))
        if given.format not in (None, "", "table", "json"):
            raise UsageError(f"--format={given.format}: must be table or json")
        return given


def index_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun index`: 1 when it holds nothing."""
    parser = Parser("index", description=__doc__, epilog=_EPILOG)
    parser.add_argument("folders", metavar="DIR", nargs="*", help="more summaries to read")
    given = parser.parse(argv)
    with opened(given) as store:
        refreshed = bring_up_to_date(store, given, [Path(name) for name in given.folders])
        counts, bad = store.counts(), store.bad_files()
    if given.format == "json":
        text = json.dumps(document(store.address, refreshed, counts, bad)) + "\n"
    else:
        text = summary(store.address, refreshed, counts)
    for folder in refreshed.empty:
        _say(f"{folder}: there is no perfzero_summary.json in it; a file may be named by itself")
    for one in bad:
        _say(f"{one.path} is left out: it {one.reason}")
    sys.stdout.write(text)
    return 0 if counts.trials else 1


@contextmanager
def opened(given: argparse.Namespace) -> Iterator[Store]:
    """Open the index that the flags name. Raises UsageError when there is no workspace for one."""
    workspace = _workspace(given.workspace)
    if not workspace.is_dir() and (given.workspace or not given.store):
        raise UsageError(
            f"--workspace={workspace}: is not there; name the workspace, or an index with --store"
        )
    address = parse_address(given.store, workspace)
    with no_collection():  # SQLAlchemy takes a fifth of a second to import
        from perfrun.store.index import open_store

    with open_store(address) as store:
        yield store


def bring_up_to_date(
    store: Store, given: argparse.Namespace, folders: Sequence[Path] = ()
) -> Refreshed:
    """Read what is new in the workspace and in the folders."""
    workspace = _workspace(given.workspace)
    own = store.address.workspace is None and workspace.is_dir()
    return store.refresh([*([workspace] if own else []), *folders])


def _workspace(text: str | None) -> Path:
    try:
        return Path(text or "workspace").absolute()
    except FileNotFoundError:
        raise UsageError("the current folder has been removed; change to another one") from None


def document(
    address: Address, refreshed: Refreshed, counts: Counts, bad: Sequence[BadFile]
) -> dict[str, Any]:
    """What `--format=json` prints."""
    return {
        "store": address.shown,
        "found": refreshed.found,
        "read": refreshed.read,
        "gone": refreshed.gone,
        "trials": counts.trials,
        "methods": counts.methods,
        "bad_files": [{"path": one.path, "reason": one.reason} for one in bad],
    }


def summary(address: Address, refreshed: Refreshed, counts: Counts) -> str:
    """What happened and what there is, in two lines."""
    parts = [f"{refreshed.found} summaries", f"{refreshed.read} new or changed"]
    if refreshed.gone:
        parts.append(f"{refreshed.gone} gone")
    if refreshed.bad:
        parts.append(f"{refreshed.bad} cannot be read")
    return (
        f"found {', '.join(parts)}\n"
        f"{address.shown}: {_many(counts.trials, 'trial')} of {_many(counts.methods, 'method')}\n"
    )


def _say(text: str) -> None:
    sys.stderr.write(f"perfrun: {text}\n")


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
