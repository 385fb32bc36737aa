"""A night as JUnit XML: one test suite for each run, one test case for each method.

`time` is the wall time that was spent: of all trials of a method, the starting of their processes
included. The order of elements is that of the schemas of JUnit that CI servers check.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from xml.etree import ElementTree

from perfrun.nightly.report import MethodReport, NightReport
from perfrun.shown import xml
from perfrun.text import redact


def junit(report: NightReport) -> str:
    """Return the document: failed and out of bounds are failures, not run is an error."""
    root = ElementTree.Element("testsuites", _counts(report.methods, len(report.errors)))
    root.set("name", xml(report.suite))
    units: dict[str, list[MethodReport]] = {}
    for method in report.methods:  # a sweep may have as many runs as methods
        units.setdefault(method.unit, []).append(method)
    for unit, own in units.items():
        suite = _suite(root, report, unit, own, 0)
        for method in own:
            _case(suite, method)
    _regressions(root, report)
    if report.errors:
        suite = _suite(root, report, "night", (), len(report.errors))
        for number, text in enumerate(report.errors, start=1):
            name = f"error {number}"
            case = ElementTree.SubElement(suite, "testcase", {"classname": "night", "name": name})
            ElementTree.SubElement(case, "error", {"message": xml(text), "type": "error"})
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )


def _regressions(root: ElementTree.Element, report: NightReport) -> None:
    """Add a test case for each regression: the method itself may have passed."""
    if not report.regressions:
        return
    count = str(len(report.regressions))
    suite = _suite(root, report, "changes", (), 0)
    suite.attrib.update(tests=count, failures=count)
    for key in ("tests", "failures"):
        root.set(key, str(int(root.get(key, "0")) + len(report.regressions)))
    for change in report.regressions:
        name = f"{change.name} {change.metric}"
        about = {"classname": xml(change.environment), "name": xml(name)}
        case = ElementTree.SubElement(suite, "testcase", about)
        text = f"{(change.ratio - 1) * 100:+.1f} % since the night of {change.night}"
        text += f" ({change.status})"
        ElementTree.SubElement(case, "failure", {"message": xml(text), "type": "regression"})


def _suite(
    root: ElementTree.Element,
    report: NightReport,
    name: str,
    methods: Sequence[MethodReport],
    errors: int,
) -> ElementTree.Element:
    begun = datetime.fromtimestamp(report.begun).isoformat(timespec="seconds")
    counts = _counts(methods, errors)
    return ElementTree.SubElement(
        root, "testsuite", {"name": xml(name), "timestamp": begun, "skipped": "0", **counts}
    )


def _counts(methods: Sequence[MethodReport], errors: int) -> dict[str, str]:
    failures = sum(method.state in ("failed", "out_of_bounds") for method in methods)
    not_run = sum(method.state == "not_run" for method in methods)
    return {
        "tests": str(len(methods) + errors),
        "failures": str(failures),
        "errors": str(not_run + errors),
        "time": f"{sum(method.spent_s for method in methods):.6f}",
    }


def _case(suite: ElementTree.Element, method: MethodReport) -> None:
    # A password in a name is not known for one once the name is divided.
    classname, _, name = redact(method.method).replace(":", ".").rpartition(".")
    if method.setting:
        name = f"{name} [{redact(method.setting_text)}]"
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {"classname": xml(classname), "name": xml(name), "time": f"{method.spent_s:.6f}"},
    )
    facts = {
        "environment": method.environment,
        "owner": method.owner or "",
        "canary": "yes" if method.canary else "",
        **_figures(method),
    }
    properties = ElementTree.SubElement(case, "properties")
    for key, value in facts.items():
        if value:
            pair = {"name": xml(key), "value": xml(value)}
            ElementTree.SubElement(properties, "property", pair)
    kind = {"failed": "failure", "out_of_bounds": "failure", "not_run": "error"}.get(method.state)
    if kind:
        about = {"message": xml(method.why or ""), "type": method.state}
        element = ElementTree.SubElement(case, kind, about)
        element.text = "\n".join(
            xml(f"{failure.status}: {failure.reason or ''} ({failure.summary})")
            for failure in method.failures
        )
    elif method.why:
        ElementTree.SubElement(case, "system-out").text = xml(method.why)


def _figures(method: MethodReport) -> dict[str, str]:
    """Return each median as a bare number, which CI servers plot, and its unit beside it."""
    facts = {}
    for figure in method.figures:
        facts[figure.metric] = repr(float(figure.median))
        facts[f"{figure.metric}.unit"] = figure.unit
    return facts
