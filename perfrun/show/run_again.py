"""The command line that runs a trial again, quoted for a shell and without secrets."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from perfrun.run.own_results import OwnResults
from perfrun.shown import visible
from perfrun.summary.reconstruction import reconstruct
from perfrun.summary.record import SUMMARY, SummaryRecord, parse_record, read_content
from perfrun.summary.series_identity import section, text
from perfrun.text import redact_words

_DEFAULTS = ("--root_data_dir=/data",)


@dataclass(frozen=True, kw_only=True)
class RunAgain:
    """The words of the command, and what is to be known before it is used."""

    words: tuple[str, ...] = ()  # none when there is no such command
    lacks: tuple[str, ...] = ()  # facts that are not on record: the trial would be another one
    why_not: str = ""  # there is no command
    is_own: bool = False  # a run of this workspace wrote the summary

    @property
    def command(self) -> str:
        """The command in one line, as a shell reads it."""
        return shlex.join(self.words)


def run_again(record: SummaryRecord, workspace: Path) -> RunAgain:
    """Reconstruct the command; `workspace` is used where the trial's own is not known."""
    document = record.document
    imported = text(section(section(document, "perfrun"), "imported").get("format"))
    if imported:
        return RunAgain(why_not=f"it was imported from {imported}")
    if not document.get("execution_id"):
        return RunAgain(why_not="its summary is not here, and the index has no flags")
    made = reconstruct(document)
    if not made.words:
        return RunAgain(why_not=", ".join(made.lost))
    own = _workspace_of(record) or workspace
    after = ("--", *made.benchmark_flags) if made.benchmark_flags else ()
    place = () if own == Path("workspace").absolute() else (f"--workspace={own}",)
    method = f"--benchmark_methods={record.method}"
    flags = [word for word in made.words if word not in _DEFAULTS]
    words = redact_words(["perfrun", *place, method, *flags, *after])
    odd = [word for word in words if visible(word) != word]
    lacks = [*made.lost, *(["characters that no terminal shows"] if odd else [])]
    return RunAgain(words=tuple(words), lacks=tuple(lacks), is_own=_is_own(record, own))


def _workspace_of(record: SummaryRecord) -> Path | None:
    """Return the workspace in whose `output` the summary lies."""
    parents = record.path.parents
    known = record.path.name == SUMMARY and len(parents) > 2 and parents[1].name == "output"
    return parents[2].absolute() if known else None


def _is_own(record: SummaryRecord, workspace: Path) -> bool:
    try:
        content = read_content(record.path)
        again = parse_record(content, record.path)
    except (OSError, ValueError):
        return False
    return again.uid == record.uid and OwnResults(workspace).has(
        record.run_id, record.path, content
    )
