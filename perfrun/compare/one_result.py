"""The one result that a word names, and the consent without which nothing of it runs again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from perfrun.compare.baselines import LAST
from perfrun.compare.selection import Results
from perfrun.errors import UsageError
from perfrun.options.parsers import CommandParser, parse_word
from perfrun.options.plan import RunPlan
from perfrun.run.own_results import OwnResults
from perfrun.shown import say
from perfrun.summary.record import BadSummary, SummaryRecord, parse_record, read_content
from perfrun.summary.series_identity import section, text

IMPORTED, ALL = "imported", "all"
_DEFAULT = ""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A result as its file has it."""

    record: SummaryRecord
    content: bytes  # of the summary; what is checked is what is used
    is_own: bool  # a run of this workspace wrote it


def find(word: str, workspace: Path, store: str | None = None) -> Asked:
    """Return the one trial that a word names, of an index or of the folder. Raises UsageError."""
    records = Results(workspace, say, store).select(word)
    newest = sorted(records, key=lambda one: (one.timestamp, one.execution_id))
    is_last = word in (LAST, f"run:{LAST}") and not Path(word).exists()
    if len(newest) > 1 and not is_last:
        raise UsageError(
            f"{word}: names {len(newest)} trials; name one of them (`perfrun show` lists them)"
        )
    path = newest[-1].path
    if not path.name:
        raise UsageError(f"{word}: its summary is not here, and the index has no flags")
    return read(path, workspace)


def read(path: Path, workspace: Path) -> Asked:
    """Read a summary. Raises UsageError."""
    try:
        content = read_content(path)  # once: what is checked is what is used
        record = parse_record(content, path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except BadSummary as error:
        raise UsageError(f"{path}: {error}") from None
    own = section(record.document, "perfrun")
    tool = text(section(own, "imported").get("format"))
    if tool or not own:
        raise UsageError(
            f"{path}: is a result of {tool or 'PerfZero'}, which does not say enough to be run "
            "again"
        )
    return Asked(
        record=record,
        content=content,
        is_own=OwnResults(workspace).has(record.run_id, path, content),
    )


def add_trust(made: CommandParser) -> None:
    """Declare `--trust`."""
    about = (
        "run what a summary names that no run of this workspace wrote: imported, as far as runs "
        "here have used it; all, whatever it names"
    )

    def parsed(word: str, flag: str) -> str:
        return parse_word(word, flag, (IMPORTED, ALL))

    made.flag("--trust", "imported|all", about, parsed, _DEFAULT)


def refuse_without_consent(
    asked: Asked, plan: RunPlan, workspace: Path, trust: str, what: str, python: str = ""
) -> None:
    """Raise UsageError unless a run of this workspace wrote the summary, or the user consents.

    `what` is done with it, in words; `python` is the interpreter that the user has named.
    """
    path = asked.record.path
    if asked.is_own or trust == ALL:
        return
    if trust != IMPORTED:
        raise UsageError(
            f"{path}: {IMPORTED}, not run in this workspace: to {what} is to run what a "
            f"stranger names; read `perfrun show {path}`, then say --trust=imported (what runs of "
            "this workspace have used) or --trust=all"
        )
    foreign = replace(plan, python="") if python else plan
    unused = OwnResults(workspace).unused(foreign)
    if unused:
        raise UsageError(
            f"{path}: {IMPORTED}, and no run of this workspace has used {unused} so far; "
            "--trust=all consents to it"
        )
