"""The documents say what the program does: every flag, every field, every link."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from pathlib import Path

import error_messages
import pytest

from perfrun.analysis.costs import Figure
from perfrun.changes import bisect
from perfrun.compare import ab, command
from perfrun.dlbs import command as dlbs_parsing
from perfrun.exchange.command import FORMATS, export_parser, import_parser
from perfrun.explain import command as explain_command
from perfrun.options.flags import parser
from perfrun.probes.accelerators import Accelerators, DevicesUsage, DeviceUsage
from perfrun.probes.counters import Counters
from perfrun.probes.machine import AtStart, Machine
from perfrun.probes.processor import Cache, Frequency
from perfrun.probes.rapl import Meter
from perfrun.probes.watch import Energy
from perfrun.summary.cpu import Cpu, Work
from perfrun.summary.document import Outcome, Status, Usage
from perfrun.summary.memory import CgroupMemory, DeviceMemory, Memory
from perfrun.versus import options
from perfrun.versus.answer import Cell, Ratio

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("option", sorted(parser()._option_string_actions))
def test_every_flag_is_explained(option: str) -> None:
    if option.startswith("--"):
        assert f"`{option}`" in (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("made", [ab.parser(), command.parser()], ids=lambda made: made.prog)
def test_every_flag_of_a_comparison_is_explained(made: argparse.ArgumentParser) -> None:
    text = (ROOT / "docs" / "guides" / "comparing.md").read_text(encoding="utf-8")
    for option in made._option_string_actions:
        assert f"`{option}`" in text or option in ("-h", "--help"), option


def test_every_flag_of_frameworks_side_by_side_is_explained() -> None:
    text = (ROOT / "docs" / "guides" / "versus.md").read_text(encoding="utf-8")
    for option in options.parser()._option_string_actions:
        assert f"`{option}`" in text or option in ("-h", "--help"), option
    for kind in (Cell, Ratio, Figure):
        for field in fields(kind):  # type: ignore[arg-type]
            assert f"`{field.name}`" in text or field.name == "case", field.name


def test_every_flag_of_dlbs_is_explained() -> None:
    text = (ROOT / "docs" / "guides" / "dlbs.md").read_text(encoding="utf-8")
    for option in dlbs_parsing.parser()._option_string_actions:
        assert f"`{option}`" in text or option in ("-h", "--help"), option


@pytest.mark.parametrize("made", [import_parser(), export_parser()], ids=lambda made: made.prog)
def test_every_flag_of_an_exchange_is_explained(made: argparse.ArgumentParser) -> None:
    text = (ROOT / "docs" / "guides" / "suites.md").read_text(encoding="utf-8")
    for option in made._option_string_actions:
        assert f"`{option}`" in text or option in ("-h", "--help"), option
    assert all(f"`{name}`" in text for name in FORMATS)


def test_every_flag_of_a_search_is_explained() -> None:
    text = (ROOT / "docs" / "guides" / "bisecting.md").read_text(encoding="utf-8")
    for option in bisect.parser()._option_string_actions:
        assert f"`{option}`" in text or option in ("-h", "--help"), option


def test_every_flag_of_an_explanation_is_explained() -> None:
    text = (ROOT / "docs" / "guides" / "explaining.md").read_text(encoding="utf-8")
    for option in explain_command.parser()._option_string_actions:
        assert f"`{option}`" in text or option in ("-h", "--help"), option


def test_every_flag_that_is_shown_has_a_help_text() -> None:
    for action in parser()._actions:
        assert action.help, action.option_strings
        if action.help is not argparse.SUPPRESS:
            assert len(action.help) < 160


SECTIONS = (Usage, Memory, CgroupMemory, DeviceMemory, Cpu, Work, Counters)
DEVICES = (DevicesUsage, DeviceUsage, Energy, Meter)
MACHINE = (Machine, AtStart, Accelerators, Cache, Frequency)


@pytest.mark.parametrize("kind", [Outcome, *SECTIONS, *DEVICES, *MACHINE])
def test_every_field_of_a_summary_is_explained(kind: type) -> None:
    text = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    for field in fields(kind):  # type: ignore[arg-type]
        assert re.search(rf"\b{field.name}`", text), field.name


def test_every_outcome_is_explained() -> None:
    text = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    for status in Status:
        assert f"`{status.value}`" in text


def test_every_finding_is_explained() -> None:
    sources = sorted((ROOT / "perfrun" / "summary").glob("quality*.py"))
    text = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    codes = {
        code
        for path in sources
        for code in re.findall(
            r"(?:code=|beyond\(\s*|^        \()\"([a-z_]+)\"", path.read_text("utf-8"), re.MULTILINE
        )
    }
    assert len(codes) > 20
    assert [code for code in sorted(codes) if f"`{code}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
        if "://" not in target:
            there = page.parent / target if target else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the names that a link to a page may have after its #."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", t.lower())) for t in titles}


def test_every_message_of_an_error_is_explained() -> None:
    explained = error_messages.rows(error_messages.PAGE.read_text(encoding="utf-8"))
    known = {message.key for message in error_messages.messages()}
    assert len(known) > 300
    again = "`python tests/error_messages.py` writes the page anew; then write the advice"
    assert sorted(known - set(explained)) == [], f"docs/reference/messages.md lacks these: {again}"
    assert sorted(set(explained) - known) == [], f"nothing says these any more: {again}"
