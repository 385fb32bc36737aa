"""`perfrun report`: its page holds what the results say, and no text of them does anything."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfrun.benchmark import main
from perfrun.errors import StoreError
from perfrun.options.store_address import parse_address
from perfrun.page.command import report_command
from perfrun.page.content import Asked, page_of
from perfrun.page.document import Page
from perfrun.page.material import stored
from perfrun.page.render import template
from perfrun.store import index
from perfrun.store.index import Store, open_store
from perfrun.store.query import Selector
from tests.pages import read_page, unpack
from tests.summaries import summary, write
from tests.worlds import World

DAY_S = 86400.0
BEGIN_S = 1_790_000_000.0
SLOW_FROM, NIGHTS = 25, 40
HOSTILE = (
    "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u2028\u202e\x1b[2J&amp;"
)
SECRET = "https://user:hunter22@host/x?token=abcdef hf_" + "A" * 34
SOURCE = """
class Cases(Benchmark):
    def spin(self):
        self.measure(lambda: sum(range(200)), block_size=1, iterations=60, warmup=5)
    def odd(self):
        self.report_benchmark(wall_time=0.25, metrics=[
            {"name": "nan", "value": float("nan")}, {"name": "inf_s", "value": float("inf")},
            {"name": "loss</script>", "value": 1e307}, {"name": "fine_s", "value": 0.5}])
    def fails(self):
        raise ValueError("</script><!-- password=hunter22")
"""


def nights(
    count: int = NIGHTS, method: str = "pkg.cases.Cases.spin", **facts: Any
) -> list[dict[str, Any]]:
    """A method that is 20 % slower from a night on; each night has its commit."""
    return [
        summary(
            method=method,
            wall_time=(1.2 if night >= SLOW_FROM else 1.0) * (1 + 0.004 * (night * 7 % 5 - 2)),
            name=f"night-{night:03}",
            timestamp=BEGIN_S + night * DAY_S,
            run_id=f"run-{night}",
            **{"commits": {"models": f"{night:040x}"}, **facts},
        )
        for night in range(count)
    ]


def report(folder: Path, *words: str) -> dict[str, Any]:
    """Write the page and return its data; all texts in it are clean."""
    page = folder / "page.html"
    assert report_command([f"--workspace={folder}", f"--output={page}", *words]) == 0
    html = page.read_text(encoding="utf-8")
    assert "hunter22" not in html
    return read_page(html).data


def texts_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner: Sequence[Any] = ()
    if isinstance(value, dict):
        inner = [*value, *value.values()]
    elif isinstance(value, list):
        inner = value
    return [text for one in inner for text in texts_of(one)]


def test_real_trials_come_into_the_page(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(SOURCE)
    methods = ",".join(f"pkg.cases.Cases.{name}" for name in ("spin", "odd", "fails"))
    done = world.run("--benchmark_num_trials=2", "--format=json", methods=methods)
    assert done.code == 1, done.stderr
    made = world.run_words([world.python, world.entry, "report", "--title=A <b> & c"])
    assert made.code == 0, made.stderr
    assert made.stdout.startswith("report.html: ")
    assert "6 trials, 3 methods" in made.stdout
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    data = read_page(html).data

    assert (data["title"], data["outcomes"]) == ("A <b> & c", {"passed": 4, "failed": 2})
    by_name = {one["name"].rpartition(".")[2]: one for one in data["methods"]}
    assert by_name["fails"]["state"] == "failed"
    assert (by_name["fails"]["trials"], by_name["fails"]["failed"]) == (2, 2)
    (machine,) = data["machines"]
    assert machine["trials"] == 6

    spin = by_name["spin"]
    main_series = data["series"][spin["main"]]
    assert (main_series["metric"], main_series["unit"], main_series["n"]) == ("wall_time", "s", 1)
    spins = [d for d in done.summaries() if d["benchmark_result"]["name"].endswith("spin")]
    assert len(spins) == 2
    # A trial that the machine has disturbed does not count beside one that it has not.
    calm = [d for d in spins if not d["perfrun"]["quality"]["disturbed"]] or spins
    expected = sum(d["benchmark_result"]["wall_time"] for d in calm) / len(calm)
    assert unpack(data, main_series["value"]) == [pytest.approx(expected, rel=1e-9)]
    detail = data["details"][spin["detail"]]
    samples = unpack(data, detail["samples"])
    assert len(samples) == 60
    assert all(one is not None and 0 < one < 1 for one in samples)
    assert "--benchmark_methods=pkg.cases.Cases.spin" in detail["command"]
    assert {name for name, _ in detail["environment"]} >= {"Python", "machine", "perfrun"}
    assert {one["name"] for one in detail["phases"]} == {"import", "setup", "method"}

    # What is no number for a reader is left out; a number that no sum would survive is missing.
    metrics = {data["series"][at]["metric"]: at for at in by_name["odd"]["series"]}
    assert "fine_s" in metrics
    assert not {"nan", "inf_s"} & metrics.keys()
    failure = data["details"][by_name["fails"]["detail"]]["failures"][0]
    assert failure["reason"] == "ValueError: </script><!-- password=***"
    assert any("ValueError" in line for line in failure["tail"])
    assert "hunter22" not in html
    assert all(text.isprintable() for text in texts_of(data))


def test_a_regression_and_where_it_began(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "output", *nights())
    data = report(tmp_path)
    (change,) = data["changes"]
    series = data["series"][change["series"]]
    assert (change["direction"], change["status"], change["at"]) == (
        "worse",
        "candidate",
        SLOW_FROM,
    )
    assert change["low"] < change["ratio"] < change["high"]
    assert change["ratio"] == pytest.approx(1.2, rel=0.02)
    assert change["text"] == "no pairs have been run"
    assert change["commits"] == [f"models {24:040x}"[:17] + f"..{25:040x}"[:12]]
    assert (series["metric"], series["n"]) == ("wall_time", NIGHTS)
    times = unpack(data, series["time"])
    assert times == [BEGIN_S - BEGIN_S % 60 + night * DAY_S for night in range(NIGHTS)]
    commits = [data["commits"][int(at or 0)]["id"] for at in unpack(data, series["commit"])]
    assert commits == [f"{night:040x}"[:12] for night in range(NIGHTS)]
    (method,) = data["methods"]
    assert 0.001 < method["noise"] < 0.02  # that of the present level, without the step
    assert change["environment"] == []  # only the commit differs, which is said apart
    assert method["against_last_night"] == pytest.approx(1.0, abs=0.03)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    capsys.readouterr()
    assert report(tmp_path, "--format=json")["changes"] == data["changes"]
    told = json.loads(capsys.readouterr().out)
    assert told.pop("file") == str(tmp_path / "page.html")
    assert abs(told.pop("bytes") - len(html.encode())) < 50  # of the time at which it was made
    assert told == {
        "trials": NIGHTS,
        "methods": 1,
        "histories": 2,
        "points": 2 * NIGHTS,
        "changes": 1,
        "worse": 1,
        "left_out": [],
    }


def test_nights_searches_and_a_baseline_have_their_say(tmp_path: Path) -> None:
    write(tmp_path / "output", *nights())
    told = report(tmp_path)["changes"][0]
    environment = told_environment(tmp_path)
    change = {
        **{name: told[name] for name in ("metric", "direction", "night", "alarm_night")},
        "method": "pkg.cases.Cases.spin",
        "environment": environment,
        "status": "confirmed",
        "confirmation": {"reason": None, "ratio": 1.19, "low": 1.18, "high": 1.21, "pairs": 8},
    }
    night = tmp_path / "nights" / f"models-{told['alarm_night']}"
    night.mkdir(parents=True)
    (night / "report.json").write_text(json.dumps({"changes": [change, "x", {"method": 1}]}))
    revisions = [f"{night:040x}" for night in range(20, 30)]
    for name, at in (("2", 5), ("1", 9)):  # the second one is not within the change's commits
        search = tmp_path / "bisect" / name
        search.mkdir(parents=True)
        answer = {
            "status": "found",
            "method": change["method"],
            "metric": "wall_time",
            "direction": "worse",
            "ratio": 1.2,
            "low": 1.1,
            "high": 1.3,
            "culprit": {"name": revisions[at], "author": "A", "date": "", "subject": HOSTILE},
        }
        (search / "answer.json").write_text(json.dumps(answer))
        begin = {"event": "begin", "revisions": revisions}
        (search / "search.jsonl").write_text(json.dumps(begin) + "\n{}\n")
    (tmp_path / "bisect" / "0").symlink_to(tmp_path / "bisect" / "1")
    assert main(["baseline", "set", "old", f"--workspace={tmp_path}", "id:night-003"]) == 0
    data = report(tmp_path, "--baseline=old")
    (found,) = data["changes"]
    assert found["status"] == "confirmed"
    assert found["text"] == "confirmed by 8 pairs: 1.190 (1.180..1.210)"
    assert (found["culprit"]["commit"], found["culprit"]["repository"]) == (revisions[5], "")
    assert found["culprit"]["subject"].startswith("</script><script>alert(1)")
    assert data["methods"][0]["against_baseline"] == pytest.approx(1.2, rel=0.02)
    assert all(text.isprintable() for text in texts_of(data))


def told_environment(workspace: Path) -> str:
    data = read_page((workspace / "page.html").read_text(encoding="utf-8")).data
    environment: str = data["methods"][0]["environment"]
    return environment


def test_hostile_texts_are_texts(tmp_path: Path) -> None:
    odd = {
        "method": f"pkg.mod.Cases.{HOSTILE}",
        "label": f"{HOSTILE} {SECRET}",
        "metrics": {HOSTILE: 1.0, "b" * 5000: 2.0, "half \ud800 pair": 3.0, "huge": 10**400},
        "commits": {HOSTILE: HOSTILE},
        "system": {"cpu_model": HOSTILE, "hostname": SECRET},
        "distributions": {HOSTILE: SECRET},
    }
    documents = [
        *nights(3, **odd),
        summary(name="x", timestamp=BEGIN_S + 4 * DAY_S, status="failed"),
    ]
    documents[-1]["perfrun"]["outcome"] |= {"reason": SECRET, "stderr_tail": HOSTILE * 500}
    documents[1]["perfrun"]["series"] = [{"times_s": [1, 2, None, HOSTILE], "name": HOSTILE}]
    documents[1]["perfrun"]["profiles"] = [
        {"files": [{"path": "javascript:alert(1)"}, {"path": ".."}]}
    ]
    documents[2]["perfrun"]["phases"] = {"import": {"wall_s": 10**400}, "method": []}
    write(tmp_path / "output", *documents)
    data = report(tmp_path, f"--title={HOSTILE}")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    for wrong in ("<img", "alert(1)</script", "hf_AAAA", "\u2028", "\u202e", "\x1b", "<!--<"):
        assert wrong not in html
    assert len(read_page(html).scripts) == 3
    texts = texts_of(data)
    assert all(text.isprintable() for text in texts)
    assert all(len(text) <= 600 for text in texts if not set(text) <= set(BASE64))
    assert data["title"].startswith("</script><script>alert(1)</script>")


BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="


def test_cuts_gaps_and_busy_nights_are_marked(tmp_path: Path) -> None:
    documents = nights(12, system={"accelerator_driver_version": "570"})
    for document in documents[6:]:
        document["system_info"]["accelerator_driver_version"] = "580"
        document["perfrun"]["environment"]["python"]["version"] = "3.11.9"
    documents[3]["perfrun"]["quality"]["disturbed"] = True
    documents[8]["benchmark_info"]["has_exception"] = True
    documents[8]["perfrun"]["outcome"]["status"] = "timed_out"
    write(tmp_path / "output", *documents)
    data = report(tmp_path)
    (method,) = data["methods"]
    series = data["series"][method["main"]]
    assert series["n"] == 12  # one history, though `detect` has two
    assert series["cuts"] == [{"at": 6, "text": "driver 570 -> 580; python 3.11.2 -> 3.11.9"}]
    assert series["flags"] == "AAAAAQAAAAACAAAA"
    assert [at for at, one in enumerate(unpack(data, series["value"])) if one is None] == [8]
    assert (method["failed"], data["outcomes"]["timed_out"]) == (1, 1)
    assert method["noise"] < 0.02
    chosen = report(tmp_path, "run:run-1", "run:run-2")
    assert (chosen["selection"], chosen["series"][0]["n"]) == ("run:run-1 and run:run-2", 2)
    assert report(tmp_path, "--nights=3")["series"][0]["n"] == 4


def test_a_cut_says_the_step_across_it(tmp_path: Path) -> None:
    documents = nights(SLOW_FROM + 6, system={"accelerator_driver_version": "570"})
    for document in documents[SLOW_FROM:]:
        document["system_info"]["accelerator_driver_version"] = "580"
        document["perfrun"]["environment"]["python"]["version"] = "3.11.9"
    write(tmp_path / "output", *documents)
    data = report(tmp_path)
    cuts = {data["series"][at]["metric"]: data["series"][at]["cuts"]
            for at in data["methods"][0]["series"]}  # fmt: skip
    changed = "driver 570 -> 580; python 3.11.2 -> 3.11.9"
    (cut,) = cuts["wall_time"]
    assert cut["at"] == SLOW_FROM
    assert re.fullmatch(rf"{changed}; level \+20 % \(\+\d+ % to \+2\d %\), worse", cut["text"])
    assert cuts["peak_rss_bytes"] == [{"at": SLOW_FROM, "text": changed}]


@pytest.mark.parametrize(("first_after", "is_beside"), [(11, False), (10, True)])
def test_a_night_stands_beside_the_last_one_of_the_same_environment_only(
    first_after: int, is_beside: bool, tmp_path: Path
) -> None:
    documents = nights(12, system={"accelerator_driver_version": "570"})
    for document in documents[first_after:]:
        document["system_info"]["accelerator_driver_version"] = "580"
    write(tmp_path / "output", *documents)
    (method,) = report(tmp_path)["methods"]
    assert (method["against_last_night"] is not None) == is_beside


@pytest.mark.parametrize(
    ("words", "telling"),
    [
        ((), "holds no results"),
        (("run:none",), "holds no such results"),
        (("-o", "."), "name a file"),
        (("-o", "no/page.html"), "there is no folder no"),
        (("--nights=0",), "--nights"),
        (("-o", "-", "--format=json"), "needs a file"),
        (("--since=soon",), "write a date"),
        (("--baseline=none",), "there is no baseline"),
        (("--workspace=gone",), "is not there"),
    ],
)
def test_what_cannot_be_reported_is_said_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    telling: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workspace").mkdir()
    assert main(["report", *words]) == 2
    error = capsys.readouterr().err
    assert telling in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


def test_the_missing_library_is_named_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    template.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["report", f"--workspace={tmp_path}/gone", f"-o={tmp_path}/page.html"]) == 2
    assert capsys.readouterr().err == (
        "perfrun: a page needs jinja2: pip install 'perfrun[report]'\n"
    )


def test_the_page_of_a_large_index_is_that_of_its_whole_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(5)
    documents = []
    for method in ("pkg.cases.Cases.spin", "pkg.cases.Cases.other"):
        for night, one in enumerate(nights(method=method)):
            if method.endswith("other"):
                one["execution_id"] += "-other"
                one["perfrun"]["run_id"] = draw.choice(("", f"run-{night}"))
            if draw.random() < 0.1:
                one["perfrun"]["outcome"]["status"] = "failed"
                one["benchmark_info"]["has_exception"] = True
                one["benchmark_result"] |= {"succeeded": False, "wall_time": -1}
            one["perfrun"]["quality"] = {"grade": "B", "disturbed": draw.random() < 0.2}
            one["perfrun"]["environment"]["python"] = {"version": f"3.{10 + night // 35}.1"}
            documents.append(one)
    write(tmp_path / "output", *documents)
    address = parse_address(None, tmp_path)

    def pages(*, large: bool) -> list[Page]:
        monkeypatch.setattr(index, "COLUMNS_FROM", 1 if large else 10**9)
        with open_store(address) as store:
            store.refresh()
            found = [stored(store, tmp_path, {}, since=0.0, nights=span) for span in (365, 12)]
            made = []
            for material, since in found:
                chosen = tuple(store.trials(Selector(since=since)))
                whole = replace(material, trials=chosen, facts={}, whole=None)
                for one in (material, material if large else whole):
                    page = page_of(one, Asked(title="T", since=since))
                    made.append(replace(page, made=0.0))
        return made

    large, small = pages(large=True), pages(large=False)
    assert large == small
    assert large[0].changes
    assert any(one.failures for one in large[0].details)
    assert (tmp_path / "perfrun.db-columns").is_file()


def test_a_page_whose_trials_another_command_removes_ends_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "output", *nights(20))
    monkeypatch.setattr(index, "COLUMNS_FROM", 1)
    read = Store.facts
    monkeypatch.setattr(Store, "facts", lambda store: read(store)[1:])
    with pytest.raises(StoreError, match="has lost trials while they were read"):
        report(tmp_path)
