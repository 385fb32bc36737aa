"""Run many methods of shipped classes in one process: importing a framework takes the longest."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shipped_run import ROOT

from perfrun.summary.arithmetic import figures, peak_of, work_of
from perfrun.worker.test_log import decode_entries

_PROGRAM = """
import importlib, json, os, sys
folder, runs = sys.argv[1], json.loads(sys.argv[2])
said, asked = {}, []
for name, (target, keywords, variables) in runs.items():
    module, class_name, method = target.rsplit(".", 2)
    found = getattr(importlib.import_module(module), class_name)
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        made = found(output_dir=folder, **keywords)
        report = made.report_benchmark
        made.report_benchmark = lambda name=name, report=report, **kw: report(name=name, **kw)
        # What the harness leaves to a process of its own, which imports the framework once more.
        made.count_afterwards = lambda *given, name=name, **kw: asked.append((name, *given, kw))
        getattr(made, method)()
    except (ValueError, RuntimeError) as error:
        said[name] = f"{type(error).__name__}: {error}"
    finally:
        os.environ.clear()
        os.environ.update(before)
counted = {}
for name, function, arguments, rest in json.loads(json.dumps(asked)):
    module, _, function = function.rpartition(".")
    function = getattr(importlib.import_module(module), function)
    os.environ.update(runs[name][2])
    counted[name] = function(arguments, ["work", "peak"], None, rest["rate"]), rest
print(json.dumps([said, counted]))
"""


@dataclass(frozen=True, kw_only=True)
class Method:
    """`package.module.Class.method`, the keywords of its class, and variables of its time."""

    target: str
    keywords: Mapping[str, object]
    variables: Mapping[str, str]


def method(target: str, variables: Mapping[str, str] | None = None, **keywords: object) -> Method:
    return Method(target=target, keywords=keywords, variables=variables or {})


@dataclass(frozen=True, kw_only=True)
class Several:
    """The methods' reports by the names that they were given, and the messages of refused ones."""

    reports: Mapping[str, Mapping[str, Any]]  # the whole entry, and metrics and extras as dicts;
    # with the figures that perfrun adds
    refusals: Mapping[str, str]


def run_several(python: str, folder: Path, methods: Mapping[str, Method]) -> Several:
    runs = {
        name: (each.target, dict(each.keywords), dict(each.variables))
        for name, each in methods.items()
    }
    done = subprocess.run(
        [python, "-c", _PROGRAM, str(folder), json.dumps(runs)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TEST_REPORT_FILE_PREFIX": f"{folder}/proto_",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",  # on a busy machine threads mostly wait for each other
        },
    )
    assert done.returncode == 0, done.stderr
    refusals, counted = json.loads(done.stdout.splitlines()[-1])
    reports = {}
    for path in folder.glob("proto_*"):
        (entry,) = decode_entries(path.read_bytes())
        metrics = {metric["name"]: metric["value"] for metric in entry["metrics"]}
        extras = {extra["name"]: extra["value"] for extra in entry["extras"]}
        bounds = {
            metric["name"]: (metric.get("min_value"), metric.get("max_value"))
            for metric in entry["metrics"]
        }
        name = path.name.rpartition(".")[2]
        if name in counted:
            found, asked = counted[name]
            work, peak = work_of(found["work"]), peak_of(found["peak"])
            more, said = figures(work, peak, asked["rate"])
            assert not set(more) & set(metrics)
            assert not set(said) & set(extras)
            metrics, extras = {**metrics, **more}, {**extras, **said}
        reports[name] = {**entry, "metrics": metrics, "extras": extras, "bounds": bounds}
    return Several(reports=reports, refusals=refusals)
