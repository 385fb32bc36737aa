"""`perfrun nightly SUITE.toml`: run a night of benchmarks and deliver its reports."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from perfrun.changes.budget import DEFAULT_CHANGES, Budget
from perfrun.errors import Interrupted, PerfrunError, UsageError, WorkspaceError
from perfrun.locks import FileLock
from perfrun.nightly.chat import FORMATS as CHAT_FORMATS
from perfrun.nightly.check import check
from perfrun.nightly.junit import junit
from perfrun.nightly.markdown import markdown
from perfrun.nightly.night_state import REPORT, Earlier, Nights, why_not_continued
from perfrun.nightly.openmetrics import openmetrics
from perfrun.nightly.report import NightReport, gaps, gather, report_document
from perfrun.nightly.screen import show
from perfrun.nightly.suite import Night, Outputs, Suite, units, words
from perfrun.nightly.suite_causes import with_causes
from perfrun.nightly.suite_changes import with_changes
from perfrun.nightly.suite_file import read_suite
from perfrun.nightly.suite_incidents import told_incidents, with_incidents
from perfrun.nightly.trends import with_trends
from perfrun.nightly.units import Units
from perfrun.nightly.webhook import post
from perfrun.options.parsers import CommandParser, parse_word
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption
from perfrun.shown import say, write_json, write_lines
from perfrun.summary.result_folder import write_whole
from perfrun.text import redacted

_EPILOG = """\
A night that was killed goes on when the same command is given again, before its deadline.

Exit status: 0 all well, 1 something failed, missed a bound or was not run, 2 a suite that is wrong
or a night that still goes on, 3 internal error, 130 interrupted. All of it is in
docs/guides/nightly.md.
"""

_FORMATS = ("markdown", "text", "json")


def write_reports(report: NightReport, folder: Path, outputs: Outputs) -> tuple[str, ...]:
    """Write the reports; return a line for each file that could not be written."""
    texts = {
        "markdown": ("report.md", markdown(report)),
        "junit": ("junit.xml", junit(report)),
        "openmetrics": ("metrics.prom", openmetrics(report)),
        "json": (REPORT, json.dumps(redacted(report_document(report)), indent=1) + "\n"),
    }
    notes = []
    for kind, (name, text) in texts.items():
        for path in (folder / name, getattr(outputs, kind)):
            try:
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(path, text)
            except OSError as error:
                notes.append(f"{path} could not be written: {error.strerror or error}")
    return tuple(notes)


def parser() -> CommandParser:
    """Return the parser of the flags of `perfrun nightly`."""
    about = "Run the benchmarks of a suite file, and report."
    made = CommandParser("perfrun nightly", about, _EPILOG)
    made.add_argument(
        "suite", metavar="SUITE.toml", help="the suite to run: docs/guides/nightly.md"
    )
    about_check = "only show the runs, and look up repositories, environments and methods"
    made.switch("--check", about_check)
    made.switch("--new_night", "do not go on with a night that was killed")
    confirm = "run the trials before and after each new change in pairs, as detect --confirm"
    made.switch("--confirm", confirm)
    formats = partial(parse_word, words=_FORMATS)
    about_format = "of the report on stdout (default: text on a terminal, else markdown)"
    made.flag("--format", "|".join(_FORMATS), about_format, formats)
    webhook_formats = partial(parse_word, words=CHAT_FORMATS)
    about_webhook = "of what the webhook gets (default: as the suite says, else json)"
    made.flag("--webhook_format", "|".join(CHAT_FORMATS), about_webhook, webhook_formats)
    made.switch("--quiet", "do not show what benchmarks print")
    return made


def nightly_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun nightly`: 1 when something failed, missed a bound or was not run."""
    given = parser().parse_args(list(argv))
    suite = read_suite(Path(given.suite))
    if given.confirm and suite.confirm is None and suite.confirm_budget is None:
        suite = replace(suite, confirm=Budget(most=DEFAULT_CHANGES))
    if given.webhook_format:
        if not suite.webhook:
            raise UsageError(f"--webhook_format: {suite.path} names no webhook; add webhook = URL")
        suite = replace(suite, webhook_format=given.webhook_format)
    as_json = given.format == "json"
    if given.check:
        return _show(suite, as_json=as_json)
    # Progress goes to the other stream, because programs read the report.
    screen = Terminal(sys.stderr, sys.stderr, quiet=False, benchmark_output=not given.quiet)
    try:
        report = run_night(suite, screen, new=given.new_night)
    except OSError as error:  # of the disk of the workspace
        if error.filename is None:
            raise
        text = f"{error.filename}: {error.strerror}; the night cannot go on"
        raise WorkspaceError(text) from None
    if as_json:
        write_json(report_document(report))
    elif given.format == "text" or (given.format is None and sys.stdout.isatty()):
        show(report, Terminal(sys.stdout, sys.stderr, quiet=True))
    else:
        sys.stdout.write(markdown(report))
    return 0 if report.is_ok else 1


def run_night(suite: Suite, screen: Terminal, *, new: bool = False) -> NightReport:
    """Run a night, or the rest of a killed one, and deliver its reports.

    Raises UsageError when another night is running in the workspace, and Interrupted.
    """
    nights = Nights(suite.workspace)
    with FileLock(nights.lock) as lock:
        if not lock.try_own():
            raise UsageError(
                f"another night goes on in {suite.workspace}: {nights.newest() or 'just begun'}; "
                "let it end, or give the suite a workspace of its own"
            )
        night, resumed, notes = _begin(nights, suite, screen, new=new)
        with Interruption().installed() as interruption:
            running = Units(suite, nights, night, screen, interruption, resumed=resumed)
            try:
                running.run()
                report = _finish(suite, nights, running.night, screen, notes, interruption)
            except Interrupted:
                raise Interrupted(
                    f"{night.night} interrupted; the same command goes on with it"
                ) from None
            try:
                _prune(suite, screen, interruption)
            except Interrupted:
                raise Interrupted(
                    f"{night.night} is over and its reports are written; removing old results was "
                    "interrupted, and the next night goes on with that"
                ) from None
        return report


def _begin(
    nights: Nights, suite: Suite, screen: Terminal, *, new: bool
) -> tuple[Night, bool, list[str]]:
    """Continue the suite's last night if it was killed, and return True with it; else begin one."""
    now = time.time()
    last = nights.unfinished(suite)
    if last is None:
        return nights.begin(suite, now), False, []
    why = "a new night was asked for" if new else why_not_continued(last, suite, now)
    total, done = len(units(suite)), len(last.units)
    if why is None:
        screen.note(f"going on with {last.night}: {done} of {total} runs are done")
        return last, True, [f"The night was interrupted, and went on after {done} of {total} runs."]
    nights.save(replace(last, ended=now, given_up=True))
    note = f"{last.night} did not come to its end ({done} runs done), and could not go on: {why}"
    screen.note(note)
    return nights.begin(suite, now), False, [note]


def _finish(
    suite: Suite,
    nights: Nights,
    night: Night,
    screen: Terminal,
    notes: list[str],
    interruption: Interruption,
) -> NightReport:
    """Judge the night and deliver its reports. Signals wait only while a report is written."""
    with interruption.allowed():
        report = gather(suite, night, time.time(), (), notes)
        earlier, untold = nights.reports_before(night), nights.untold_before(night)
        report = with_trends(_with_gaps(report, night, earlier), earlier)
    report, told = with_changes(suite, report, earlier, untold, screen, interruption)
    if told:
        with interruption.allowed():
            report = with_incidents(suite, report)
        report = with_causes(suite, report, screen, interruption)
    ended = time.time()  # after confirming, which takes time
    report = replace(report, ended=ended)
    folder = nights.folder_of(night)
    troubles = list(write_reports(report, folder, suite.outputs))
    interruption.check()
    if suite.webhook and not night.delivered:
        with interruption.allowed():
            failure = post(suite.webhook, report, form=suite.webhook_format)
        troubles += [failure] if failure else []
        night = replace(night, delivered=failure is None)
        nights.save(night)  # a kill from here on does not tell it twice
    for text in troubles:
        screen.note(text)
    if troubles:  # the reports say so too, where they can be written
        report = replace(report, notes=(*report.notes, *troubles))
        write_reports(report, folder, suite.outputs)
    interruption.check()
    nights.save(replace(night, ended=ended, told=told))
    told_incidents(suite, report)
    return report


def _prune(suite: Suite, screen: Terminal, interruption: Interruption) -> None:
    """Remove what the suite's retention lets go. A failure is only shown: the night is over.

    Raises Interrupted; even then each folder is removed whole or not at all.
    """
    if suite.retention.is_empty:
        return
    from perfrun.nightly.prune import prune, removed_text

    try:
        with interruption.allowed():
            done = prune(suite.workspace, suite.retention)
    except Interrupted:
        raise
    except PerfrunError as error:
        screen.note(f"nothing was pruned: {error}")
        return
    except OSError as error:
        screen.note(f"not all was pruned: {error}; the next night removes the rest")
        return
    if done.removed:
        screen.note(f"retention: {removed_text(done)} removed ({done.bytes / 2**20:.1f} MiB)")
    for text in done.failures:
        screen.note(f"not removed: {text}")


def _with_gaps(report: NightReport, night: Night, earlier: Earlier) -> NightReport:
    """Add the gaps: what the night before had and this one has not."""
    if not earlier:
        return report
    last, document_of_last = earlier[0]
    try:
        errors, notes = gaps(document_of_last, report, same_suite=last.digest == night.digest)
    except (KeyError, TypeError, ValueError):
        return report  # the report of another version, which cannot be compared
    return replace(report, errors=(*report.errors, *errors), notes=(*report.notes, *notes))


def _show(suite: Suite, *, as_json: bool) -> int:
    """Print the runs of a suite, and look up what they name; 2 when something is not there."""
    runs = units(suite)
    night = Night(night=suite.name)
    if not as_json:
        for unit in runs:
            trials = unit.rules.trials
            often = f"{trials} trials" if trials else "trials to a precision"
            write_lines([f"{unit.title}: {often} of"])
            for method in unit.methods:
                write_lines([f"  {method.selector.text}"])
        sys.stdout.flush()  # what follows may wait for a server
    found = check(suite, say)
    if as_json:
        rows = [
            {
                "name": unit.name,
                "setting": dict(unit.setting),
                "flags": list(words(suite, unit, night)),
            }
            for unit in runs
        ]
        more = {"problems": found.problems, "not_checked": found.not_checked}
        write_json({"suite": suite.name, "runs": rows, **more})
    else:
        write_lines(f"not looked up: {text}" for text in found.not_checked)
        for text in found.problems:
            say(f"{suite.path}: {text}")
    return UsageError.exit_code if found.problems else 0
