"""`perfrun nodes`: results of many nodes to a verdict on each, and the quarantine."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import schemas

from perfrun.analysis.nodes import NodeFindings, without_equals
from perfrun.benchmark import main
from perfrun.errors import WorkspaceError
from perfrun.nodes.command import _put_in_slow_ones
from perfrun.nodes.fleet_results import FleetResults, fleet_results
from perfrun.nodes.words import lines_about
from perfrun.store import quarantine
from perfrun.store.quarantine import Period
from perfrun.summary.record import record_of
from tests.summaries import summary, write

METHODS = ("pkg.cases.Cases.matmul", "pkg.cases.Cases.copy")
CANARY = "pkg.cases.Cases.canary"
SLOW, PARTLY, OTHER = "node07", "node03", "node11"
DAY = 86400.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve nodes on two nights: one slow, one slow in a method, one with another kernel."""
    workspace = tmp_path_factory.mktemp("fleet") / "ws"
    begin = time.time() - 2 * DAY
    generator = np.random.default_rng(1)
    documents = []
    for night in range(2):
        for node in (f"node{number:02}" for number in range(12)):
            for trial in range(4):
                for at, method in enumerate((*METHODS, CANARY)):
                    factor = 1.08 if node == SLOW else 1.0
                    factor *= 1.2 if (node, at) == (PARTLY, 1) else 1.0
                    noise = float(np.exp(0.01 * generator.standard_normal()))
                    documents.append(
                        summary(
                            method=method,
                            wall_time=(1.0, 0.3, 0.1)[at] * factor * noise,
                            name=f"{night}-{node}-{trial}-{at}",
                            run_id=f"run-{night}-{node}",
                            label=f"night-{night}",
                            timestamp=begin + night * DAY + 600 * trial + at,
                            system={"hostname": node},
                            machine={"kernel": "6.2" if node == OTHER else "6.1"},
                        )
                    )
    write(workspace / "output", *documents)
    assert main(["index", f"--workspace={workspace}"]) == 0
    return workspace


@pytest.fixture
def workspace(fleet: Path, tmp_path: Path) -> Path:
    """A workspace of one's own, whose summaries need not be read again."""

    def put(source: str, target: str) -> None:
        (os.link if source.endswith(".json") else shutil.copy2)(source, target)

    shutil.copytree(fleet, tmp_path / "ws", copy_function=put)
    return tmp_path / "ws"


def do(capsys: pytest.CaptureFixture[str], workspace: Path, *words: str) -> tuple[int, Any, str]:
    capsys.readouterr()
    status = main([*words, f"--workspace={workspace}", "--format=json"])
    said = capsys.readouterr()
    return status, json.loads(said.out) if said.out else None, said.err


def verdicts(document: Any) -> dict[str, str]:
    rows = document["nodes"]
    return {row["node"]: row["verdict"] for row in rows if row["verdict"] != "like_others"}


def test_slow_nodes_are_named_within_their_fingerprint(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found, _ = do(capsys, fleet, "nodes", "--canary=*canary")
    assert status == 1
    schemas.check("nodes", found)
    assert verdicts(found) == {SLOW: "slow", PARTLY: "slow_in_some", OTHER: "alone"}
    slow, partly = found["nodes"][:2]
    assert slow["low"] < 1.08 < slow["high"]
    assert partly["methods"] == [METHODS[1]]
    assert [len(one["nodes"]) for one in found["fingerprints"]] == [11, 1]
    assert found["fingerprints"][1]["software"]["kernel"] == "6.2"
    _, wider, _ = do(capsys, fleet, "nodes", "--across=software", "--method=*")
    assert verdicts(wider) == {SLOW: "slow", PARTLY: "slow_in_some"}


def test_the_table_says_what_was_found_and_what_to_do(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nodes", f"--workspace={fleet}"]) == 1
    text = capsys.readouterr().out
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("node")}
    assert rows[SLOW].endswith("  slow")
    assert "slow in some methods" in rows[PARTLY]
    assert rows[PARTLY].endswith("copy")
    assert "no equals" in rows[OTHER]
    assert "9 of 12 nodes are like the others" in text
    assert f"perfrun nodes --quarantine={PARTLY} --quarantine={SLOW}" in text


def test_what_a_node_in_quarantine_measures_is_in_no_history_and_no_baseline(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def points() -> set[str]:
        _, found, said = do(capsys, workspace, "history", METHODS[0])
        ids = {point["execution_id"] for one in found["series"] for point in one["points"]}
        assert (f"left out: {SLOW} (24)" in said) == (len(ids) < 96)
        return {name.split("-")[1] for name in ids}

    baseline = ("baseline", "set", "first", "label:night-0")
    _, before, _ = do(capsys, workspace, *baseline)
    assert SLOW in points()
    status, found, said = do(capsys, workspace, "nodes", f"--quarantine={SLOW}", "--because=fan")
    assert (status, said) == (0, "")
    schemas.check("nodes", found)
    assert [row["because"] for row in found["quarantine"]] == ["fan"]
    assert points() == {f"node{number:02}" for number in range(12)} - {SLOW}
    # A baseline set before is compared with without it, and a new one does not have it.
    _, compared, said = do(capsys, workspace, "compare", "first", "label:night-1")
    assert f"12 of its 144 trials are left out: of {SLOW}, in quarantine" in said
    times = [one for one in compared["comparisons"] if one["metric"] == "wall_time"]
    assert [one["n_base"] for one in times] == [44, 44, 44]
    _, after, said = do(capsys, workspace, *baseline)
    assert len(before["trials"]) - len(after["trials"]) == 12
    assert "in quarantine" in said
    # It is still judged, so that one sees when it has recovered.
    status, found, _ = do(capsys, workspace, "nodes", "--method=*matmul")
    assert status == 0
    row = found["nodes"][0]
    assert (row["node"], row["verdict"], row["quarantine"]["because"]) == (SLOW, "slow", "fan")
    # Released, its later results would count; forgotten, all of them do.
    do(capsys, workspace, "nodes", f"--release={SLOW}")
    assert SLOW not in points()
    do(capsys, workspace, "nodes", f"--forget={SLOW}")
    assert SLOW in points()


def test_slow_nodes_are_put_into_quarantine_when_that_is_asked_for(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found, _ = do(capsys, workspace, "nodes", "--quarantine_slow")
    assert status == 0  # all that are slow are in it now
    by_node = {row["node"]: row["because"] for row in found["quarantine"]}
    assert by_node.keys() == {SLOW, PARTLY}
    assert by_node[SLOW].startswith("slow (+")
    schemas.check("quarantine-file", json.loads((workspace / quarantine.FILE).read_text()))
    again = quarantine.read(workspace)
    do(capsys, workspace, "nodes", "--quarantine_slow")
    assert quarantine.read(workspace) == again


def test_a_baseline_of_nodes_in_quarantine_alone_is_refused(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    do(capsys, workspace, "nodes", f"--quarantine={SLOW}")
    words = ("baseline", "set", "first", f"run:run-0-{SLOW}")
    status, _, said = do(capsys, workspace, *words)
    assert status == 2
    assert f"all of its 12 trials are of nodes in quarantine ({SLOW})" in said


def test_a_quarantine_from_a_day_on_keeps_what_was_before() -> None:
    known = quarantine.put_in(
        quarantine.Quarantine(), [Period(node="n", at=9.0, because="", since=5.0)]
    )
    assert [known.leaves_out("n", at) for at in (4.9, 5.0, 9.0, 1e9)] == [False, True, True, True]
    assert not known.leaves_out("m", 6.0)
    later = quarantine.put_in(
        quarantine.released(known, ["n"], 7.0), [Period(node="n", at=20.0, because="", since=20.0)]
    )
    assert [later.leaves_out("n", at) for at in (6.9, 7.0, 19.9, 20.0)] == [
        *(True, False, False, True)
    ]
    assert quarantine.forgotten(later, ["n"]) == quarantine.Quarantine()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--since=2030-01-01"], "holds no results of that kind since 2030-01-01"),
        (["--from=3x", "--quarantine=a"], "--from=3x: write a date"),
        (["--because=x"], "--because and --from go with --quarantine"),
        (["--quarantine_slow", "--release=a"], "--quarantine_slow and --release exclude"),
        (["--quarantine=a", "--release=a"], "a node is named twice"),
        (["--quarantine=a b"], "is no name of a node"),
        ([f"--release={SLOW}"], f"node {SLOW} is not in the quarantine"),
        (["--forget=x"], "node x is not in the quarantine"),
        (["--error=0"], "more than 0"),
        (["--across=moon"], "--across"),
        (["--metric=wall_tme"], "--metric=wall_tme: no result of"),
        (["--metric=wall_tme"], "has it; did you mean wall_time?"),
        (["--canary=*canry"], "--canary=*canry: no result of"),
    ],
)
def test_a_mistake_gives_one_line(
    fleet: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    status, _, said = do(capsys, fleet, "nodes", *words)
    assert status == 2
    assert text in said
    assert said.count("\n") == 1
    assert not (fleet / quarantine.FILE).exists()


def test_a_node_without_results_is_put_in_and_said(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found, said = do(capsys, workspace, "nodes", "--quarantine=nodes07")
    assert status == 0
    assert "no results of node nodes07 yet; did you mean node07?" in said
    assert [row["node"] for row in found["quarantine"]] == ["nodes07"]


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"version": 2, "periods": []}', '{"version": 1, "periods": [{"node": "n"}]}',
     '{"version": 1, "periods": [], "more": 1}'],
)  # fmt: skip
def test_a_file_that_is_none_of_ours_stops_what_it_is_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / quarantine.FILE).write_text(content)
    for words in (["history", METHODS[0]], ["nodes"], ["nodes", "--quarantine=a"]):
        status, _, said = do(capsys, tmp_path, *words)
        assert status != 0
        assert quarantine.FILE in said.splitlines()[-1]
        assert "Traceback" not in said
    assert (tmp_path / quarantine.FILE).read_text() == content


def test_a_slow_node_is_no_regression_once_it_is_in_quarantine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = np.random.default_rng(2).standard_normal(40)
    for night in range(40):
        is_slow = night >= 30  # from then on, the scheduler gives the nights to another node
        write(
            tmp_path / "output",
            summary(
                wall_time=(1.15 if is_slow else 1.0) * float(np.exp(0.005 * noise[night])),
                name=f"night-{night:02}",
                run_id=f"run-{night:02}",
                timestamp=1.79e9 + night * DAY,
                system={"hostname": "slow" if is_slow else "good"},
            ),
        )
    status, found, said = do(capsys, tmp_path, "detect", "--metric=wall_time")
    assert (status, len(found["changes"]), said) == (1, 1, "")
    # The quarantine is the workspace's, and holds for a team's store as well.
    store = f"--store={tmp_path / 'team.db'}"
    assert do(capsys, tmp_path, "detect", "--metric=wall_time", store)[0] == 1
    do(capsys, tmp_path, "nodes", "--quarantine=slow")
    for words in ([], [store]):
        status, found, said = do(capsys, tmp_path, "detect", "--metric=wall_time", *words)
        assert (status, found["changes"]) == (0, [])
        assert "nodes in quarantine are left out: slow (10)" in said
    do(capsys, tmp_path, "nodes", "--quarantine=good")
    status, _, said = do(capsys, tmp_path, "detect")
    assert status == 2
    assert "left out: good (30), slow (10)" in said.splitlines()[0]


NO_FIGURES = FleetResults(figures=(), groups={}, nodes={}, nameless=0, disturbed=0)


def slow_nodes(*names: str) -> list[NodeFindings]:
    return [replace(without_equals(name), verdict="slow", effect=0.08) for name in names]


def test_what_is_written_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for begin in ("1970-01-01", "1900-01-01", "30000d"):
            status, found, _ = do(capsys, tmp_path, "nodes", "--quarantine=a", f"--from={begin}")
            assert (status, found["quarantine"][0]["since"]) == (0, 0.0)
            quarantine.read(tmp_path)
    finally:
        monkeypatch.undo()
        time.tzset()
    before = quarantine.read(tmp_path)
    status, _, said = do(capsys, tmp_path, "nodes", "--quarantine=b", "--from=9000-01-01")
    assert status != 0
    assert "quarantine.json is not written: " in said
    assert "since is 2218" in said
    for wrong in (Period(node="n" * 256, at=9.0, because=""), Period(node="n", at=-1, because="")):
        with pytest.raises(WorkspaceError, match="is not written"):
            quarantine.change(tmp_path, lambda known, one=wrong: quarantine.put_in(known, [one]))
    assert quarantine.read(tmp_path) == before


def test_a_name_that_no_host_can_have_is_not_put_into_quarantine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = slow_nodes("n" * 300, "two words", "good")
    after = _put_in_slow_ones(slow, NO_FIGURES, quarantine.Quarantine(), tmp_path)
    assert after.nodes == quarantine.read(tmp_path).nodes == ("good",)
    said = capsys.readouterr().err
    assert "two words is no name of a node" in said
    assert "nnnn... is no name of a node" in said


def test_a_name_of_a_stranger_is_quoted_in_the_command_to_be_copied() -> None:
    slow = slow_nodes("x;touch${IFS}/tmp/pwned;#", "n" * 300, "good")
    (line,) = (
        line
        for line in lines_about(slow, NO_FIGURES, quarantine.Quarantine(), 0.005)
        if "perfrun nodes" in line
    )
    words = shlex.split(line.partition(": ")[2])
    wanted = ["--quarantine=x;touch${IFS}/tmp/pwned;#", "--quarantine=good"]
    assert words == ["perfrun", "nodes", *wanted]
    assert f"'{wanted[0]}'" in line


def test_a_disturbed_trial_counts_once_whatever_it_measured(tmp_path: Path) -> None:
    records = [
        record_of(
            summary(
                name=f"trial-{number}",
                disturbed=number == 0,
                metrics={"latency_s": 1.0, "latency_median_s": 1.0},
                system={"hostname": "node"},
            ),
            tmp_path,
        )
        for number in range(4)
    ]
    found = fleet_results(records, metric="*")
    assert len({group.metric for group in found.groups.values()}) > 1
    assert found.disturbed == 1
