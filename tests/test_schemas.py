"""The published schemas describe the documents that the commands write, key by key."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import schemas
from pages import read_page
from worlds import ROOT, World, strict

from perfrun.benchmark import main
from perfrun.compare.baselines import _VERSION as BASELINE_VERSION
from perfrun.exchange.rows import COLUMNS
from perfrun.probes.accelerators import Accelerators, DeviceUsage, SampledRange
from perfrun.probes.rapl import Meter
from perfrun.summary.document import SCHEMA_VERSION, Status
from perfrun.summary.memory import DeviceMemory
from perfrun.versus.saved_comparison import SCHEMA_VERSION as VERSUS_VERSION

PERFZERO = ROOT / "tests" / "data" / "perfzero"
CASES = """
class Cases(Benchmark):
    def measured(self):
        time.sleep(0.5)  # long enough for several readings of memory: a timeline
        self.measure(lambda: sum(range(1000)), items_per_step=2, iterations=12, warmup=2)

    def missed(self):
        self.report_benchmark(
            iters=1, wall_time=0.25, extras={"batch_size": 8, "note": "text"},
            metrics=[{"name": "accuracy", "value": float("nan"), "min_value": 0.9},
                     {"name": "loss", "value": 0.5}])

    def raises(self):
        raise ValueError("boom")
"""
MEASURED, MISSED, RAISES = (f"pkg.cases.Cases.{name}" for name in ("measured", "missed", "raises"))
SUITE = """
name = "cases"
workspace = "{folder}/nights"
python_path = ["{folder}/code"]
trials = 1
[[methods]]
name = "pkg.cases.Cases.measured"
[[methods]]
name = "pkg.cases.Cases.raises"
"""
UNIT = re.compile(r"\. Unit: [^.]+\.$")
OUTCOMES = {status.value for status in Status}


def answer(*words: str) -> Any:
    """What a command prints with `--format=json`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        status = main([*words, "--format=json"])
    assert status in (0, 1), words
    return strict(out.getvalue())


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Documents that real commands have written, by the name of their schema."""
    world = World(tmp_path_factory.mktemp("world"))
    world.write(CASES)
    place = f"--workspace={world.workspace}"
    every = ",".join((MEASURED, MISSED, RAISES))
    old = world.run("--execution_label=old", "--benchmark_num_trials=2", "--format=json",
                    "--profile=cprofile", methods=every)  # fmt: skip
    found = {"baseline": [answer("baseline", "set", "first", "label:old", place)]}
    new = world.run("--baseline=first", "--execution_label=new", "--format=json", methods=MEASURED)
    assert (old.code, new.code) == (1, 0), (old.stderr, new.stderr)
    found["run"] = [strict(done.stdout) for done in (old, new)]
    found["run"] += [strict(p.read_text()) for p in world.workspace.glob("runs/*.report.json")]
    paths = [*world.summary_files(), *world.workspace.glob("output/*/profiles/*/*_summary.json")]
    found["summary"] = [strict(path.read_text()) for path in paths]
    logs = world.workspace.glob("runs/*.jsonl")
    found["journal"] = [strict(line) for log in logs for line in log.read_text().splitlines()]
    files = world.workspace.glob("baselines/*.json")
    found["baseline-file"] = [strict(path.read_text()) for path in files]
    found["baseline"] += [answer("baseline", "list", place)]
    found["show"] = [answer("show", f"--workspace={world.workspace}", what)
                     for what in ("last", "label:old")]  # fmt: skip
    found["compare"] = [answer("compare", "label:old", "label:new", place)]
    found["index"] = [answer("index", place)]
    found["history"] = [answer("history", "*", "--metric=*", place)]
    found["plot"] = [answer("plot", *words, place) for words in (
        ("history", "*"), ("distribution", MEASURED), ("memory", MEASURED))]  # fmt: skip
    page = world.folder / "page.html"
    found["report"] = [answer("report", f"--output={page}", "--baseline=first", place)]
    found["page"] = [read_page(page.read_text(encoding="utf-8")).data]
    found["baseline"] += [answer("baseline", "rm", "first", place)]
    found["prune"] = [answer("prune", place, "--keep_nights=1", "--dry_run")]
    code = f"--python_path={world.folder / 'code'}"
    found["list"] = [answer("list", "pkg", "--cost", place, code), answer("list", "pkg", code)]
    table = world.folder / "table.json"
    assert main(["export", f"--json={table}", place]) == 0
    found["export"] = [strict(table.read_text())]
    suite = world.folder / "suite.toml"
    suite.write_text(SUITE.format(folder=world.folder))
    night = world.run_words([world.python, world.entry, "nightly", str(suite), "--format=json"])
    found["nightly"] = [strict(night.stdout)]
    reports = (world.folder / "nights").glob("nights/*/report.json")
    found["nightly"] += [strict(path.read_text()) for path in reports]
    found["nightly-check"] = [answer("nightly", str(suite), "--check")]
    found["submit"] = [answer("submit", str(suite), "--sweep", "undefok=1,2", "--dry_run")]
    found["fleet"] = [answer("submit", str(suite))]
    nights = f"--workspace={world.folder / 'nights'}"
    found["fleet-table"] = [answer("fleet", nights, "--table")]
    return found


def test_every_key_of_the_documents_is_described(documents: dict[str, list[Any]]) -> None:
    for name, found in documents.items():
        assert found, name
        for document in found:
            assert not schemas.wrong(name, document), name
            assert schemas.published(name).is_valid(document), name


def test_the_documents_are_not_nearly_empty(documents: dict[str, list[Any]]) -> None:
    """A list without an item would show nothing about its items."""
    run, judged = documents["run"][:2]
    assert {one["status"] for one in run["results"]} == {"passed", "out_of_bounds", "failed"}
    assert run["profiles"]
    assert judged["baseline"]["comparisons"]
    events = {event["event"] for event in documents["journal"]}
    assert events == {"begin", "round", "started", "written", "finished", "end"}
    own = [one["perfrun"] for one in documents["summary"]]
    assert any(one["series"] for one in own)
    assert any(one["profiles"] for one in own)
    lists = [
        documents["history"][0]["series"],
        documents["compare"][0]["comparisons"],
        documents["show"][0]["shown"]["figures"],
        documents["export"][0],
        documents["nightly"][0]["methods"][0]["figures"],
        documents["nightly"][0]["methods"][1]["failures"],
        *(one["pictures"] for one in documents["plot"]),
        *(documents["page"][0][name] for name in ("machines", "methods", "series", "details")),
        documents["fleet-table"][0]["rows"],
        documents["fleet"][0]["machines"],
        documents["prune"][0]["removed"],
    ]
    details = documents["page"][0]["details"]
    assert any(one["samples"] and one["timeline"] and one["phases"] for one in details)
    assert any(one["failures"] for one in details)
    assert all(lists[:-1])
    assert any(one["cost"] for one in documents["list"][0]["methods"])


def test_a_broken_document_is_refused(documents: dict[str, list[Any]]) -> None:
    """A required key that is missing, a value of another type, an unknown outcome."""
    for name, found in documents.items():
        count = 0
        for document in found[:3]:
            root = schemas.published(name)
            for place, part, broken in broken_parts(schemas.schema(name), name, document):
                count += 1
                assert not root.evolve(schema=part).is_valid(broken), f"{name} {place}"
        assert count > 5, name


def broken_parts(part: Any, name: str, document: Any, place: str = "$") -> Iterator[Any]:
    """Yield each part of a document in ways that its schema has to refuse."""
    part = resolved(part, name, document)
    if isinstance(document, list) and document and isinstance(part.get("items"), dict):
        yield place, part, [*document, *[[[]]]]
        yield from broken_parts(part["items"], name, document[0], f"{place}[0]")
    if not isinstance(document, dict) or "properties" not in part:
        return
    for key in part.get("required", ()):
        yield f"{place} without {key}", part, {k: v for k, v in document.items() if k != key}
    for key, inner in part["properties"].items():
        if key not in document:
            continue
        if inner:
            yield f"{place}.{key} of another type", part, {**document, key: [[[]]]}
        if "enum" in inner:
            yield f"{place}.{key} unknown", part, {**document, key: "exploded"}
        yield from broken_parts(inner, name, document[key], f"{place}.{key}")


def resolved(part: Any, name: str, document: Any) -> dict[str, Any]:
    """The schema that a part stands for; of several, the one that the document meets."""
    found: dict[str, Any] = part
    while "$ref" in found or "oneOf" in found or "anyOf" in found:
        if "$ref" in found:
            found = schemas.schema(name)["$defs"][found["$ref"].rpartition("/")[2]]
            continue
        several = found.get("oneOf") or found["anyOf"]
        root = schemas.published(name)
        found = next(one for one in several if root.evolve(schema=one).is_valid(document))
    return found


@pytest.mark.parametrize("path", sorted(PERFZERO.glob("*.json")), ids=lambda path: path.stem)
def test_summaries_of_perfzero_are_valid_for_its_part(path: Path) -> None:
    document = strict(path.read_text(encoding="utf-8"))
    schemas.check("perfzero", document)
    assert schemas.wrong("summary", document)  # it has no key `perfrun`


def test_a_summary_of_perfrun_is_valid_for_perfzeros_part(documents: dict[str, list[Any]]) -> None:
    for document in documents["summary"]:
        assert schemas.published("perfzero").is_valid(document)


def test_the_summary_has_perfzeros_part_word_for_word() -> None:
    theirs, ours = (schemas.schema(name)["properties"] for name in ("perfzero", "summary"))
    own_figures = ours["process_info"]["properties"].items()
    assert theirs["process_info"]["properties"].items() <= own_figures
    for key in theirs.keys() - {"process_info"}:
        assert ours[key] == theirs[key], key
    assert ours.keys() - theirs.keys() == {"perfrun"}


@pytest.mark.parametrize("name", schemas.names())
def test_a_schema_says_what_each_value_is(name: str) -> None:
    whole = schemas.schema(name)
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(whole)
    assert re.fullmatch(rf"urn:perfrun:schema:{name}:[1-9][0-9]*", whole["$id"])
    assert whole["title"]
    for place, part in schemas.parts(whole):
        kinds = part.get("type", ())
        kinds = {kinds} if isinstance(kinds, str) else set(kinds)
        if "properties" in place.split("/")[-2:-1]:
            assert part.get("description") or "$ref" in part, place
        if kinds & {"number", "integer"}:
            assert UNIT.search(part["description"]), place
        if set(part.get("enum", ())) & {"passed", "crashed"} and len(part["enum"]) > 2:
            assert set(part["enum"]) == OUTCOMES, place
        if "properties" in part:
            assert set(part.get("required", ())) <= part["properties"].keys(), place


def test_definitions_of_the_same_name_are_the_same() -> None:
    seen: dict[str, Any] = {}
    for name in schemas.names():
        for key, part in schemas.schema(name).get("$defs", {}).items():
            assert seen.setdefault(key, part) == part, f"{name} {key}"


def test_versions_are_those_of_the_program() -> None:
    summary = schemas.schema("summary")
    version = summary["properties"]["perfrun"]["properties"]["schema_version"]["const"]
    assert version == SCHEMA_VERSION
    assert summary["$id"].endswith(f":{SCHEMA_VERSION}")
    assert schemas.schema("versus")["properties"]["schema_version"]["const"] == VERSUS_VERSION
    assert schemas.schema("baseline-file")["properties"]["version"]["const"] == BASELINE_VERSION


def test_the_table_of_export_is_that_of_the_schema() -> None:
    row = schemas.schema("export")["items"]
    assert list(row["properties"]) == row["required"] == [column.name for column in COLUMNS]


def test_what_only_some_machines_have_is_described() -> None:
    own = schemas.schema("summary")["properties"]["perfrun"]["properties"]
    device = own["devices"]["properties"]["devices"]["items"]
    parts = {
        DeviceUsage: device,
        SampledRange: device["properties"]["power_w"],
        Accelerators: own["machine"]["properties"]["accelerators"],
        Meter: own["energy"]["properties"]["meters"]["items"],
        DeviceMemory: own["memory"]["properties"]["device"]["items"],
    }
    for kind, part in parts.items():
        assert part["properties"].keys() == {one.name for one in fields(kind)}, kind


def test_the_reference_names_every_schema_with_its_version() -> None:
    text = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    section = text.partition("\n## Schemas\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", section, re.MULTILINE))
    wanted = {name: schemas.schema(name)["$id"].rpartition(":")[2] for name in schemas.names()}
    assert rows == wanted
