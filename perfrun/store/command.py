"""`perfrun index`: bring the index over summaries up to date, and say what it holds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.errors import UsageError
from perfrun.options.parsers import CommandParser, parse_workspace
from perfrun.options.store_address import Address, parse_address
from perfrun.shown import say, write_json, write_prose
from perfrun.store.garbage_collection import no_collection
from perfrun.text import counted

if TYPE_CHECKING:
    from perfrun.store.index import Refreshed, Store
    from perfrun.store.query import BadFile, Counts

_EPILOG = """\
DIR is a workspace, an output folder, a result folder or a summary; PerfZero's are read as they are.
Summaries that cannot be read are named and left out.

Exit status: 0, or 1 when there is no summary that can be read. All of it is in
docs/reference/store.md.
"""


def index_parser(command: str, text: str | None, epilog: str) -> CommandParser:
    """Return the parser of a command that reads an index, with the flags that all of them have."""
    made = CommandParser(f"perfrun {command}", text, epilog)
    made.add_workspace()
    made.add_store()
    made.add_format()
    return made


def index_command(argv: Sequence[str]) -> int:
    """Run `perfrun index`; return its exit status, 1 when the index holds no trial."""
    parser = index_parser("index", __doc__, _EPILOG)
    parser.add_argument("folders", metavar="DIR", nargs="*", help="more summaries to read")
    given = parser.parse_args(list(argv))
    with opened(given) as store:
        refreshed = bring_up_to_date(store, given, [Path(name) for name in given.folders])
        counts, bad = store.counts(), store.bad_files()
    if given.format == "json":
        document = index_document(store.address, refreshed, counts, bad)
    for folder in refreshed.empty:
        say(f"{folder}: there is no perfzero_summary.json in it; a file may be named by itself")
    for one in bad:
        say(f"{one.path} is left out: it {one.reason}")
    if given.format == "json":
        write_json(document)
    else:
        write_prose(index_lines(store.address, refreshed, counts).splitlines())
    return 0 if counts.trials else 1


def address_of(given: argparse.Namespace) -> Address:
    """Return the address that the flags name. Raises UsageError for one without its workspace."""
    workspace = parse_workspace(given.workspace)
    if not workspace.is_dir() and (given.workspace or not given.store):
        raise UsageError(
            f"--workspace={workspace}: is not there; name the workspace, or an index with --store"
        )
    return parse_address(given.store, workspace)


@contextmanager
def opened(given: argparse.Namespace) -> Iterator[Store]:
    """Open the index that the flags name. Raises UsageError when there is no workspace for one.

    Say in the end which nodes were left out of what was read.
    """
    address = address_of(given)
    with no_collection():  # SQLAlchemy takes a fifth of a second to import
        from perfrun.store.index import open_store

    with open_store(address, beside=parse_workspace(given.workspace)) as store:
        try:
            yield store
        finally:  # it may be why there is nothing
            if store.left_out:
                from perfrun.store import quarantine

                say(quarantine.said(store.left_out))


def bring_up_to_date(
    store: Store, given: argparse.Namespace, folders: Sequence[Path] = ()
) -> Refreshed:
    """Read what is new in the workspace and in the folders."""
    workspace = parse_workspace(given.workspace)
    own = store.address.workspace is None and workspace.is_dir()
    return store.refresh([*([workspace] if own else []), *folders])


def index_document(
    address: Address, refreshed: Refreshed, counts: Counts, bad: Sequence[BadFile]
) -> dict[str, Any]:
    """Return the document that `--format=json` prints."""
    return {
        "store": address.shown,
        "found": refreshed.found,
        "read": refreshed.read,
        "gone": refreshed.gone,
        "trials": counts.trials,
        "methods": counts.methods,
        "bad_files": [{"path": one.path, "reason": one.reason} for one in bad],
    }


def index_lines(address: Address, refreshed: Refreshed, counts: Counts) -> str:
    """Return two lines: the summaries that were found, and how much the index holds."""
    parts = [f"{refreshed.found} summaries", f"{refreshed.read} new or changed"]
    if refreshed.gone:
        parts.append(f"{refreshed.gone} gone")
    if refreshed.bad:
        parts.append(f"{refreshed.bad} cannot be read")
    held = f"{counted(counts.trials, 'trial')} of {counted(counts.methods, 'method')}"
    return f"found {', '.join(parts)}\n{address.shown}: {held}\n"
