"""The dashboard and the alerts of deploy/ know the figures and labels that a night writes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfrun.nightly.openmetrics import openmetrics
from perfrun.nightly.report import MethodReport, NightFigure, NightReport
from tests.test_deploy import DEPLOY, load_yaml

RULES = DEPLOY / "prometheus" / "perfrun_rules.yml"
FIGURE = NightFigure(metric="wall_time", median=1.0, unit="s", direction="lower", trials=3)
METHOD = MethodReport(
    environment="e",
    unit="e#1",
    method="a.B.c",
    owner=None,
    canary=False,
    state="ok",
    why=None,
    asked=3,
    trials=3,
    disturbed=0,
    figures=(FIGURE,),
    failures=(),
)
REPORT = NightReport(
    night="n-2026-11-21",
    suite="n",
    owner=None,
    begun=0.0,
    ended=3600.0,
    deadline=None,
    commits={},
    methods=(METHOD, replace(METHOD, method="a.B.d", state="failed")),
    errors=("the index",),
    notes=(),
)
_OF_PROMETHEUS = {"instance", "job", "__name__"}
_MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')
_STATES = {"ok", "short", "failed", "out_of_bounds", "not_run"}


def written() -> dict[str, set[str]]:
    """The labels of each figure of a night."""
    found: dict[str, set[str]] = {}
    for line in openmetrics(REPORT).splitlines():
        if line.startswith("perfrun_"):
            name, _, rest = line.partition("{")
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', rest))
    return found


def check_expression(text: str) -> set[str]:
    """Check the figures and the labels of an expression; return the labels that it leaves."""
    known = written()
    names = re.findall(r"\bperfrun_\w+", text)
    assert names, text
    for name, matchers in re.findall(r"(perfrun_\w+)(?:\{([^}]*)\})?", text):
        assert name in known, name
        for label, value in _MATCHER.findall(matchers):
            assert label in known[name], (name, label)
            if label == "state":
                assert set(value.split("|")) <= _STATES
            if label == "direction":
                assert value in ("lower", "higher")
    return set.intersection(*(known[name] for name in names))


def test_the_alerts_know_the_figures_and_labels_of_a_night() -> None:
    (group,) = load_yaml(RULES)["groups"]
    for rule in group["rules"]:
        labels = check_expression(rule["expr"])
        for text in rule["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels
        assert rule["labels"]["severity"] in ("info", "warning")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_dashboard_knows_the_figures_and_labels_of_a_night() -> None:
    document = json.loads((DEPLOY / "grafana" / "perfrun.json").read_text(encoding="utf-8"))
    variables = {one["name"]: one for one in document["templating"]["list"]}
    for name, one in variables.items():
        if one["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]["query"])
        assert found is not None
        assert found[2] == name
        assert name in check_expression(found[1])
    ids, used = [], set()
    for panel in document["panels"]:
        ids.append(panel["id"])
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for target in panel["targets"]:
            labels = check_expression(target["expr"])
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels
            used |= set(re.findall(r"perfrun_\w+", target["expr"]))
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= set(variables)
        for step in panel.get("transformations", ()):
            assert set(step["options"]["excludeByName"]) <= {
                *("Time", "Value", "unit_of_night", *_OF_PROMETHEUS)
            }
    assert len(ids) == len(set(ids))
    assert used == set(written())  # the dashboard shows all of them
    (provider,) = load_yaml(DEPLOY / "grafana" / "provisioning.yml")["providers"]
    assert provider["type"] == "file"


def promtool(*words: str) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool, which Debian's package prometheus has")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def firing(name: str, at: str, *found: str) -> dict[str, Any]:
    """The alerts of a name that fire at a time, by what tells them apart."""
    samples = [{"labels": f"{{{one}}}", "value": 1} for one in found]
    by = ", ".join(sorted({label for one in found for label, _ in _MATCHER.findall(one)}))
    alerts = f'ALERTS{{alertname="{name}", alertstate="firing"}}'
    return {"expr": f"count by ({by}) ({alerts})", "eval_time": at, "exp_samples": samples}


def test_prometheus_takes_the_rules_and_they_fire_when_they_should(tmp_path: Path) -> None:
    promtool("check", "rules", str(RULES))
    lines = [one for one in openmetrics(REPORT).splitlines() if not one.startswith("#")]
    rows = [one.rpartition(" ") for one in lines]
    level = "perfrun_method_median{suite='n', metric='m', direction='%s'}"
    night = {
        "interval": "10m",
        "input_series": [{"series": n, "values": f"{float(v):g}x400"} for n, _, v in rows],
        "promql_expr_test": [
            firing("PerfrunMethodFailed", "1h", 'method="a.B.d", state="failed"'),
            firing("PerfrunNightErrors", "1h", 'suite="n"'),
            firing("PerfrunNightMissing", "36h"),
            firing("PerfrunNightMissing", "38h", 'suite="n"'),
            firing("PerfrunRegression", "1h"),
            firing("PerfrunNightTooShort", "1h"),
            firing("PerfrunFigureFarFromUsual", "1h"),
        ],
    }
    others = {
        "interval": "10m",
        "input_series": [
            {"series": "perfrun_night_regressions{suite='n'}", "values": "2x400"},
            {"series": "perfrun_method_state{method='x', state='short'}", "values": "1x400"},
            {"series": level % "lower", "values": "1x294 1.5x120"},
            {"series": level % "higher", "values": "1x294 1.5x120"},
        ],
        "promql_expr_test": [
            firing("PerfrunRegression", "1h", 'suite="n"'),
            firing("PerfrunNightTooShort", "59h"),
            firing("PerfrunNightTooShort", "62h", 'method="x"'),
            firing("PerfrunFigureFarFromUsual", "48h"),
            firing("PerfrunFigureFarFromUsual", "55h", 'direction="lower"'),
        ],
    }
    path = tmp_path / "tests.yml"
    rules = {"rule_files": [str(RULES)], "evaluation_interval": "10m", "tests": [night, others]}
    path.write_text(json.dumps(rules))  # JSON is YAML
    promtool("test", "rules", str(path))
