"""A module imports only from the lines above its own: the table is the architecture."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "perfrun"
LAYERS = (
    {"dataclass", "digest"},
    {
        "errors",
        "output",
        "quantities",
        "reports.table",
        "worker.distribution",
        "analysis.directions",
        "analysis.energy",
        "analysis.nightnoise",
        "checks.check",
        "checks.sysfs",
    },
    {"arguments"},
    {
        "analysis.hindsight",
        "analysis.separation",
        "analysis.stats",
        "archives",
        "checks.distribution",
        "checks.readings",
        "findings.finding",
        "image.engine",
        "image.gpus",
        "image.site_packages",
        "image.spec",
        "interruption",
        "containment",
        "counted",
        "redaction",
        "garbage",
        "gitnames",
        "worker.test_log",
        "worker.procfs",
        "worker.cgroups",
        "worker.allocators",
        "worker.files",
        "worker.frameworks",
        "worker.segments",
        "repetition",
        "variables",
        "worker.resolution",
        "worker.garbage",
        "worker.recompilation",
        "worker.rows",
        "worker.lookup",
        "worker.mainthread",
        "worker.recording",
        "worker.synchronise",
    },
    {"image.lock", "worker.steadiness", "worker.lifeline"},
    {
        "analysis.looks",
        "budget",
        "worker.stopping",
        "worker.xplane",
        "worker.serieswriter",
        "worker.record_calls",
        "worker.record_memory",
    },
    {"worker.record_stacks", "worker.record_torch", "worker.record_tensorflow"},
    {"worker.measurement", "worker.blocktimer"},
    {"analysis.changepoint", "worker.measuring"},
    {"worker.profiled", "worker.profiling"},
    {"worker.options"},
    {
        "analysis.detection",
        "analysis.stopping",
        "analysis.two_samples",
        "readings",
        "image.env_file",
        "image.saved",
        "image.context",
        "transfer",
        "launchers.streams",
        "worker.author",
        "worker.discovery",
        "worker.modules",
        "worker.profiler",
        "profiles",
        "locks",
        "removal",
        "probes.gpu",
        "probes.oom",
        "probes.peak",
        "probes.device_log",
        "probes.running",
        "checks.processor",
        "checks.storage",
        "checks.system",
        "reports.checks",
    },
    {
        "analysis.compare",
        "analysis.costs",
        "analysis.pairs",
        "checks.engines",
        "findings.series",
    },
    {"checks.devices", "analysis.culprits"},
    {"analysis.bisecting"},
    {"__init__", "worker.reports", "image.build", "image.flags"},
    {"worker.calibrated"},
    {"truths"},
    {"calibration"},
    {"image.main", "worker.trial", "plan"},
    {
        "worker.services",
        "worker.describe",
        "worker.supervise",
        "document",
        "probes.system",
        "probes.timeline",
        "probes.shared_memory",
        "series",
        "probes.devices",
        "probes.rapl",
    },
    {"probes.nvidia", "probes.amd", "probes.tree_memory"},
    {
        "worker.entry",
        "storage",
        "probes.disturbance",
        "probes.process_tree",
        "probes.machine",
        "follow",
        "gitcommand",
    },
    {
        "launchers.contract",
        "launchers.disk_guard",
        "launchers.sandbox",
        "launchers.docker_engine",
        "checks.software",
        "probes.watch",
    },
    {"launchers.ending", "launchers.wrapper", "findings.devices", "findings.span"},
    {"subject"},
    {"summary_metrics", "surroundings"},
    {"summary_record"},
    {"derived", "differences", "retention"},
    {"findings.machine"},
    {"quality"},
    {"estimates", "memory", "cpu"},
    {"store.address", "screen"},
    {"results", "reports.statistics", "schedule", "measured"},
    {"launchers.harness_mark", "launchers.engine_traits", "launchers.container"},
    {"store.migrations"},
    {"store.schema", "store.folders"},
    {"store.connection", "store.places", "store.query"},
    {"nights", "reports.changes", "store.columns"},
    {"store.reading", "store.writing"},
    {"ancestry"},
    {"store.index"},
    {"selection", "sets"},
    {"launchers.container_process", "launchers.container_service"},
    {"launchers.containers"},
    {"nightly.suite", "nightly.suite_values"},
    {"nightly.state", "nightly.report"},
    {"nightly.gaps"},
    {"reports.comparison", "nightly.junit", "nightly.markdown", "nightly.openmetrics"},
    {
        "launchers.local",
        "reports.run_table",
        "journal",
        "gitcache",
        "worktree",
        "summary",
        "downloads",
    },
    {"reports.profiles"},
    {"launchers.choice", "environment", "collect", "checkouts", "reports.terminal"},
    {"trial", "flags", "workspace"},
    {"cli", "recorder", "profiling"},
    {"rounds"},
    {"runner", "blocks"},
    {"dlbs.parsing"},
    {"dlbs.lines"},
    {"dlbs.command"},
    {"listing", "doctor", "selftest", "indexing"},
    {"history"},
    {"comparison", "pairing"},
    {"pairverdicts", "seats", "searchlog", "commits", "reports.bisection", "reconstruction"},
    {"searching", "confirming"},
    {"confirmations"},
    {"detecting"},
    {"revisions"},
    {"bisection"},
    {"ab"},
    {"versus.contenders", "versus.prices"},
    {"versus.parsing"},
    {"versus.trials", "versus.cells"},
    {"versus.notes"},
    {"versus.answer"},
    {"versus.document", "versus.table"},
    {"versus.combining"},
    {"versus.command"},
    {"nightly.suite_file", "nightly.gathering", "nightly.delivery", "pairsets"},
    {"nightly.units", "nightly.changes", "pruning"},
    {"nightly.judging"},
    {"nightly.command", "runcommand"},
    {"benchmark"},
    {"__main__", "dlbs.__main__"},
)
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
BARE = ("worker", "image")  # run where nothing is installed: standard library only


def modules() -> list[Path]:
    return [
        p for p in sorted(PACKAGE.rglob("*.py")) if p.name != "__init__.py" or p.parent == PACKAGE
    ]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imported(path: Path) -> set[str]:
    """All modules that a file imports, those inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_imports_only_from_lower_layers(path: Path) -> None:
    name = name_of(path)
    assert name in HEIGHT, f"{name} is in no layer"
    own = {other.removeprefix("perfrun.") for other in imported(path)} & HEIGHT.keys()
    above = {other for other in own if HEIGHT[other] >= HEIGHT[name]}
    assert not above, f"{name} may not import {sorted(above)}"


@pytest.mark.parametrize("path", [p for p in modules() if name_of(p).startswith(BARE)], ids=name_of)
def test_what_runs_on_a_bare_interpreter_imports_only_the_standard_library(path: Path) -> None:
    tops = {name.partition(".")[0] for name in imported(path)}
    # absl parses the benchmark's own flags; it is imported only when there are some.
    allowed = sys.stdlib_module_names | {"perfrun", "absl"}
    assert tops <= allowed, sorted(tops - allowed)


def test_modules_are_short() -> None:
    long = {name_of(p): n for p in modules() if (n := len(p.read_text().splitlines())) > 600}
    assert not long


def test_no_two_files_of_tests_are_the_same_module() -> None:
    # pytest collects neither of them then, and with it the whole run is an error.
    files = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]
    packages = [path.parent for path in TESTS.rglob("__init__.py")]
    names = [str(path) if TESTS / path.parent in packages else path.name for path in files]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(
    "path", [p for p in modules() if name_of(p).startswith("analysis.")], ids=name_of
)
def test_analysis_touches_nothing_but_its_arguments(path: Path) -> None:
    tops = {name.partition(".")[0] for name in imported(path)}
    assert not tops & {"io", "os", "pathlib", "shutil", "socket", "subprocess", "sys", "time"}
