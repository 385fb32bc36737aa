"""`perfrun report`: results as one HTML file that opens anywhere and asks nobody."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.errors import UsageError, WorkspaceError
from perfrun.options.parsers import CommandParser, parse_whole, parse_workspace
from perfrun.shown import as_is, say, write_json, write_prose

if TYPE_CHECKING:
    from perfrun.page.content import Asked
    from perfrun.page.document import Page
    from perfrun.page.material import Material

REPORT = "Write results as one HTML page: changes, all methods, histories, details; no network."
_EPILOG = """\
  perfrun report
  perfrun report --nights=30 --baseline=release -o nightly.html
  perfrun report label:before label:after --title="Before and after"

WORD is a folder of results, or a run, label, execution id, commit, date or baseline of the
workspace's results, or `last`; without one, all results are reported.

Exit status: 0, or 2 when there is nothing to report. All of it is in docs/guides/report.md.
"""
NIGHTS = 365
_DAY_S = 86400.0


def parser() -> CommandParser:
    """Return the parser of `perfrun report`."""
    made = CommandParser("perfrun report", REPORT, _EPILOG)
    made.add_argument("words", metavar="WORD", nargs="*", help="results to report (default: all)")
    made.add_workspace()
    made.add_store()
    made.add_argument(
        *("-o", "--output"),
        metavar="FILE",
        default="report.html",
        help="the page (default report.html); - is standard output",
    )
    made.flag("--title", "TEXT", "of the page (default: the workspace's folder)")
    made.flag("--baseline", "NAME", "compare the newest figures with that baseline's")
    made.flag("--since", "DATE|DAYSd", "leave out what is older (2026-11-01, 14d)")
    nights = partial(parse_whole, least=1)
    made.flag("--nights", "N", f"draw so many days before the newest (default {NIGHTS})", nights)
    made.add_clone()
    made.add_format()
    return made


def report_command(argv: Sequence[str]) -> int:
    """Run `perfrun report`; return its exit status."""
    given = parser().parse_args(list(argv))
    output = _output(given.output)
    if output is None and given.format == "json":
        raise UsageError("-o -: standard output is the page; --format=json needs a file for it")
    from perfrun.page.content import page_of  # numpy, SQLAlchemy
    from perfrun.page.render import template

    template()  # what is missing is said before the results are read
    material, asked = chosen(given)
    page = page_of(material, asked)
    text, shown = rendered(page)
    if output is None:
        # A page is UTF-8, as it says, whatever the terminal's encoding is.
        as_is(sys.stdout).buffer.write(text.encode("utf-8", "backslashreplace"))
        return 0
    from perfrun.summary.result_folder import write_whole

    try:
        write_whole(output, text)
    except OSError as error:
        raise WorkspaceError(f"-o {output}: cannot be written: {error.strerror}") from None
    size = len(text.encode("utf-8", "backslashreplace"))
    if given.format == "json":
        write_json(_document(output, size, shown))
    else:
        write_prose([f"{output}: {_size(size)}; {_holds(shown)}"])
    return 0


def _output(name: str) -> Path | None:
    """Return the file to write; None for standard output. Raises UsageError."""
    if name == "-":
        return None
    path = Path(name)
    if not name or path.is_dir():
        raise UsageError(f"-o {name or 'nothing'}: name a file, as -o report.html")
    if not path.parent.is_dir():
        raise UsageError(f"-o {name}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"-o {name}: the folder {path.parent} cannot be written")
    return path


def chosen(given: Any) -> tuple[Material, Asked]:
    """Return the results that the flags choose, and what else they ask for."""
    from perfrun.page.content import Asked
    from perfrun.summary.record import SummaryRecord

    workspace = parse_workspace(given.workspace)
    since = _since(given.since)
    baseline = _baseline(given, workspace)
    labels = None
    if given.words:
        material = _selected(given, workspace)
        labels = {one.label for one in material.trials if isinstance(one, SummaryRecord)}
        newest = max(one.timestamp for one in material.trials)
        since = since or (newest - given.nights * _DAY_S if given.nights else 0.0)
    else:
        material, since = _stored(given, workspace, since)
    asked = Asked(
        title=given.title or _title(workspace), since=since, baseline=baseline, labels=labels
    )
    return material, asked


def _title(workspace: Path) -> str:
    """Return a title from the name of the workspace; one called just that has its folder's name."""
    place = workspace.absolute()
    name = place.parent.name if place.name == "workspace" else place.name
    return f"Benchmarks of {name or 'this machine'}"


def _since(text: str | None) -> float:
    from datetime import date

    from perfrun.changes.detect import parse_since

    day = parse_since(text, date.today())
    return datetime(day.year, day.month, day.day).timestamp() if day else 0.0


def _baseline(given: Any, workspace: Path) -> tuple[Any, ...]:
    if not given.baseline:
        return ()
    from perfrun.compare.baselines import named
    from perfrun.compare.selection import Results

    name = named(workspace, given.baseline).name
    return Results(workspace, say, given.store).select(f"baseline:{name}")


def _selected(given: Any, workspace: Path) -> Material:
    """Return the results that words choose."""
    from perfrun.compare.selection import Results
    from perfrun.page.material import Material, different, series_of_records, urls_of

    results = Results(workspace, say, given.store)
    records = different(one for word in given.words for one in results.select(word))
    return Material(
        workspace=workspace,
        selection=" and ".join(given.words),
        trials=records,
        series=series_of_records(records),
        urls=urls_of(records),
        clones=dict(given.clone),
    )


def _stored(given: Any, workspace: Path, since: float) -> tuple[Material, float]:
    """Return all results of the index, and the time from which on they are drawn."""
    from perfrun.page.material import stored
    from perfrun.store.command import bring_up_to_date, opened

    clones = dict(given.clone)
    with opened(given) as store:
        bring_up_to_date(store, given)
        nights = given.nights or (0 if since else NIGHTS)
        return stored(store, workspace, clones, since=since, nights=nights)


def rendered(page: Page) -> tuple[str, Page]:
    """Return the page as HTML, and as it is in it: what tells least may have been left out."""
    from perfrun import __version__
    from perfrun.page.fitting import MOST_BYTES, fitted
    from perfrun.page.render import fixed_bytes, render

    shown, document = fitted(page, MOST_BYTES - fixed_bytes(), __version__)
    return render(document), shown


def _document(output: Path, size: int, page: Page) -> dict[str, Any]:
    """Return the document that `--format=json` prints."""
    return {
        "file": str(output),
        "bytes": size,
        "trials": sum(page.outcomes.values()),
        "methods": len({one.name for one in page.methods}),
        "histories": len(page.series),
        "points": sum(one.n for one in page.series),
        "changes": len(page.changes),
        "worse": sum(one.direction == "worse" for one in page.changes),
        "left_out": list(page.left_out),
    }


def _size(size: int) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def _holds(page: Page) -> str:
    held = _document(Path(), 0, page)
    parts = [
        _many(held["trials"], "trial"),
        _many(held["methods"], "method"),
        f"{_many(held['histories'], 'history', 'histories')} of {_many(held['points'], 'point')}",
        f"{_many(held['changes'], 'change')}, {held['worse']} for the worse",
    ]
    left_out = f"; left out to stay below 1 MB: {', '.join(page.left_out)}" if page.left_out else ""
    return f"{', '.join(parts)}{left_out}"


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"
