"""`perfrun import` and `perfrun export`: results of other tools, for other tools, as tables."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from perfrun.errors import UsageError
from perfrun.options.parsers import CommandParser, parse_word, parse_workspace
from perfrun.reports.output import OutputError
from perfrun.shown import as_is, say
from perfrun.text import counted, redacted

if TYPE_CHECKING:
    from perfrun.exchange.foreign import ForeignTrial, Source
    from perfrun.exchange.summaries import Written
    from perfrun.summary.record import SummaryRecord

FORMATS = ("asv", "bmf", "google-benchmark", "pyperf", "pytest-benchmark")
TABLES = ("csv", "json", "parquet")  # one row a metric of a trial
_MOST_TRIALS = 100_000  # of one import

IMPORT = """Read results of other tools into a workspace, where every command reads them."""
_IMPORT_EPILOG = """\
FILE is what the tool has written; for asv it may also be a folder `results`. All files are read and
checked before anything is written. A trial that was imported before is not written again.

Exit status: 0, or 2 for a file that cannot be used. All of it is in docs/guides/suites.md.
"""
EXPORT = """Write results as a table, or in the format of another tool."""
_EXPORT_EPILOG = """\
  perfrun export --csv=results.csv last
  perfrun export --parquet=all.parquet
  perfrun export --format=bmf label:after

A table (csv, json, parquet) has one row a metric of a trial. WORD is a folder of results, or a run,
label, execution id, commit, date or baseline of the workspace's results, or `last`; without one,
all of them are written.

Exit status: 0, or 2 when there is nothing to write. All of it is in docs/guides/suites.md.
"""


def import_parser() -> CommandParser:
    """Return the parser of `perfrun import`."""
    parser = CommandParser("perfrun import", IMPORT, _IMPORT_EPILOG)
    _add_format(parser, "that the files have", FORMATS)
    parser.flag("--workspace", "DIR", "that receives the results (default ./workspace)")
    parser.flag("--label", "TEXT", "execution label of the results")
    parser.flag("--time", "TIME", "of results that state none, as 2026-11-22T10:00:00+00:00")
    parser.add_argument("files", metavar="FILE", nargs="+", help="results to read")
    return parser


def import_command(argv: Sequence[str]) -> int:
    """Run `perfrun import`; return its exit status."""
    given = import_parser().parse_args(list(argv))
    if not given.format:
        raise UsageError(f"perfrun import: --format is missing: one of {', '.join(FORMATS)}")
    from perfrun.exchange.summaries import write_documents

    documents, sources = _read(given)
    if not documents:
        raise UsageError(f"{given.files[0]}: there is no result in it")
    workspace = parse_workspace(given.workspace)
    sys.stdout.write(_lines(write_documents(workspace, documents), sources, workspace))
    return 0


def _add_format(parser: CommandParser, text: str, words: Sequence[str]) -> None:
    parse = partial(parse_word, words=words)
    parser.flag("--format", "FORMAT", f"{text}: {', '.join(words)}", parse)


def _module(name: str) -> Any:
    """Import the module of a format, and of no other."""
    return importlib.import_module(f"perfrun.exchange.{name.replace('-', '_')}")


def _read(given: Any) -> tuple[dict[str, dict[str, Any]], int]:
    """Read all files; return the summaries by execution id, and the number of files."""
    from perfrun.exchange.foreign import read_source
    from perfrun.exchange.summaries import Origin, documents_of

    when = _time(given.time)
    documents: dict[str, dict[str, Any]] = {}
    paths = _paths(given.format, given.files)
    for path, is_named in paths:
        source = read_source(path, follow=is_named)
        origin = Origin(
            format=given.format,
            file=path.name,
            sha256=source.sha256,
            modified=source.modified,
        )
        documents |= documents_of(_trials(given.format, source), origin, given.label, when)
        if len(documents) > _MOST_TRIALS:
            raise UsageError(f"{path}: more than {_MOST_TRIALS:,} trials in one import")
    return documents, len(paths)


def _trials(name: str, source: Source) -> list[ForeignTrial]:
    trials: list[ForeignTrial] = _module(name).read(source)
    return trials


def _paths(name: str, files: Sequence[str]) -> list[tuple[Path, bool]]:
    """Return the files, and of each whether the user has named it."""
    found: list[tuple[Path, bool]] = []
    for word in files:
        path = Path(word)
        if name == "asv" and path.is_dir():
            inside = _module(name).files_of(path)
            if not inside:
                raise UsageError(f"{path}: there are no results of asv in it")
            found += [(one, False) for one in inside]
        else:
            found.append((path, True))
    return found


def _time(text: str | None) -> float | None:
    from datetime import datetime

    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--time={text}: write 2026-11-22T10:00:00, with a zone or local"
        ) from None


def _lines(written: Written, files: int, workspace: Path) -> str:
    known = f"; {written.known} had been imported before" if written.known else ""
    runs = f"run {written.runs[0]}" if len(written.runs) == 1 else f"{len(written.runs)} runs"
    return (
        f"imported {counted(written.written, 'trial')} of {counted(files, 'file')} into "
        f"{workspace / 'output'}{known}\n{runs}\n"
    )


def export_parser() -> CommandParser:
    """Return the parser of `perfrun export`."""
    parser = CommandParser("perfrun export", EXPORT, _EXPORT_EPILOG)
    for name in TABLES:
        parser.flag(f"--{name}", "FILE|-", f"write a table as {name}; - is stdout")
    _add_format(parser, "to write", (*TABLES, *FORMATS))
    parser.add_workspace()
    parser.add_store()
    parser.flag("--output", "PATH", "file to write instead of stdout; for asv a folder")
    parser.flag("--methods", "PATTERN", "methods to write (default: all); * stands for any text")
    parser.flag("--checkout", "NAME", "whose commit is written, where there are several")
    parser.add_argument("words", metavar="WORD", nargs="*", help="results to write")
    return parser


def export_command(argv: Sequence[str]) -> int:
    """Run `perfrun export`; return its exit status."""
    given = export_parser().parse_intermixed_args(list(argv))
    _settle_format(given)
    if given.format in TABLES:
        return _export_table(given)
    if given.format == "asv" and not given.output:
        raise UsageError("perfrun export: asv has several files; name a folder with --output=DIR")
    from perfrun.exchange.exported import exported

    results = exported(_chosen(given), given.checkout)
    if not results:
        raise UsageError("perfrun export: no trial of these results has ended by itself")
    document = _module(given.format).write(results)
    files = document if given.format == "asv" else {"": document}
    texts = {name: json.dumps(redacted(one), indent=1) + "\n" for name, one in files.items()}
    if given.output:
        _write(Path(given.output), texts)
    else:
        sys.stdout.write(texts[""])
    return 0


def _settle_format(given: Any) -> None:
    """Take `--csv=FILE` for `--format=csv --output=FILE`. Raises UsageError for two of them."""
    asked = [name for name in TABLES if getattr(given, name)]
    if len(asked) + bool(given.format) > 1:
        flags = [*(f"--{name}" for name in asked), *(["--format"] if given.format else [])]
        raise UsageError(f"perfrun export: {' and '.join(flags)}: one format at a time")
    if asked and given.output:
        raise UsageError(f"perfrun export: --{asked[0]} names the file; leave out --output")
    if asked:
        given.format, given.output = asked[0], getattr(given, asked[0])
    if given.output == "-":
        given.output = None
    if not given.format:
        raise UsageError(
            "perfrun export: --format is missing: say --csv=FILE, --json=FILE, --parquet=FILE, or "
            f"--format with one of {', '.join((*TABLES, *FORMATS))}"
        )


def _export_table(given: Any) -> int:
    """Write one row a metric of a trial. Summaries are read one by one where all are asked for."""
    from perfrun.exchange import rows

    rows.check(given.format)
    if given.format == "parquet" and not given.output and sys.stdout.isatty():
        raise UsageError("perfrun export: Parquet is no text: name a file with --parquet=FILE")
    found = iter(_matching(_each(given), given.methods))
    first = next(found, None)
    if first is None:
        raise UsageError("perfrun export: there is no trial of these methods")
    table = rows.rows_of(chain([first], found), given.checkout)
    if not given.output:
        _write_to_stdout(partial(rows.write, given.format, table))
        return 0
    path = Path(given.output)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            try:
                count = rows.write(given.format, table, file)
            except BaseException:
                path.unlink(missing_ok=True)  # half a table looks like a whole one
                raise
    except FileExistsError:
        raise UsageError(f"--{given.format}={path}: is there already; name another file") from None
    except OSError as error:
        raise UsageError(f"--{given.format}={path}: {error.strerror or error}") from None
    say(f"{path}: {counted(count, 'row')}")
    return 0


def _write_to_stdout(write: Callable[[BinaryIO], int]) -> None:
    """Write bytes past what cleans text on its way. Raises OutputError for a disk that is full."""
    stream: BinaryIO = as_is(sys.stdout).buffer
    try:
        write(stream)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.errno, error.strerror) from None


def _each(given: Any) -> Iterator[SummaryRecord]:
    """Yield the chosen results, each once."""
    from perfrun.compare.selection import each_of_folder

    if given.words or given.store:
        yield from _selected(given)
        return
    seen = set()
    for record in each_of_folder(parse_workspace(given.workspace), say):
        if record.uid not in seen:
            seen.add(record.uid)
            yield record


def _matching(records: Iterable[SummaryRecord], pattern: str | None) -> Iterator[SummaryRecord]:
    pattern = pattern or "*"
    for one in records:
        if fnmatchcase(one.method, pattern) or one.method == pattern:
            yield one


def _chosen(given: Any) -> list[SummaryRecord]:
    return list(_matching(_selected(given), given.methods))


def _selected(given: Any) -> Iterable[SummaryRecord]:
    from perfrun.compare.selection import Results, read_folder

    workspace = parse_workspace(given.workspace)
    chosen = Results(workspace, _say, given.store)
    if given.words:
        records = [record for word in given.words for record in chosen.select(word)]
    elif given.store:
        raise UsageError("perfrun export: with --store, say which results: a run, label or date")
    else:
        records = list(read_folder(workspace, _say))
    return {record.uid: record for record in records}.values()


def _write(path: Path, texts: dict[str, str]) -> None:
    """Write new files; one that is there is never overwritten. Raises UsageError."""
    places = {path / name if name else path: text for name, text in texts.items()}
    taken = next((place for place in places if place.exists() or place.is_symlink()), None)
    if taken:
        raise UsageError(f"--output={path}: {taken} is there already; name another place")
    try:
        for place, text in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"--output={path}: {error.strerror or error}") from None


def _say(text: str) -> None:
    say(text)
