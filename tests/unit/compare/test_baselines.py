"""Named sets of results, and `last`: how they are kept, found, compared and pruned."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from perfrun.benchmark import main
from perfrun.compare.selection import Results
from perfrun.errors import UsageError
from perfrun.options.store_address import parse_address
from perfrun.store.index import open_store
from tests.summaries import summary, trials, write

STEADY = (1.00, 1.01, 0.99, 1.005, 0.995, 1.002)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for at, (name, factor) in enumerate((("old", 1.0), ("new", 1.2))):
        documents = trials(
            [factor * t for t in STEADY], run_id=name, label=f"of-{name}", timestamp=1.7e9 + at
        )
        for number, document in enumerate(documents):
            document["execution_id"] = f"{name}-{number}"
        write(tmp_path / "ws" / "output", *documents)
    return tmp_path / "ws"


def do(capsys: pytest.CaptureFixture[str], workspace: Path, *words: str) -> tuple[int, Any]:
    status = main([*words, f"--workspace={workspace}", "--format=json"])
    found = capsys.readouterr()
    return status, json.loads(found.out) if found.out else found.err


def refresh(workspace: Path) -> None:
    with open_store(parse_address(None, workspace)) as store:
        store.refresh()


def test_a_baseline_is_compared_with_the_last_run_by_files_and_by_an_index(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, made = do(capsys, workspace, "baseline", "set", "v1.0", "of-old")
    assert (status, len(made["trials"]), made["methods"]) == (0, 6, ["pkg.cases.Cases.spin"])
    status, by_files = do(capsys, workspace, "compare", "v1.0", "last")
    assert (status, by_files["comparisons"][0]["verdict"]) == (1, "slower")
    refresh(workspace)
    assert do(capsys, workspace, "compare", "v1.0", "last") == (1, by_files)
    (workspace / "perfrun.db").unlink()  # it is no part of the index
    moved = workspace.rename(workspace.with_name("elsewhere"))
    assert do(capsys, moved, "compare", "baseline:v1.0", "run:last")[0] == 1
    assert [one["gone"] for one in do(capsys, moved, "baseline", "list")[1]["baselines"]] == [0]


def test_the_last_run_is_that_of_the_newest_trial_and_the_default_of_a_baseline(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_next_year = summary(name="forged", run_id="forged", timestamp=time.time() + 4e7)
    write(workspace / "output", of_next_year)  # an imported summary says what it likes
    assert {r.run_id for r in Results(workspace, print).select("last")} == {"new"}
    refresh(workspace)
    assert {r.run_id for r in Results(workspace, print).select("last")} == {"new"}
    do(capsys, workspace, "baseline", "set", "b")
    found = do(capsys, workspace, "baseline", "list")[1]["baselines"]
    assert {one["execution_id"][:3] for one in found[0]["trials"]} == {"new"}
    assert found[0]["selection"] == ["last"]
    write(workspace / "output", summary(name="alone", run_id="", timestamp=1.7e9 + 5))
    (workspace / "perfrun.db").unlink()
    chosen = Results(workspace, print).select("last")  # PerfZero's summaries are of no run
    assert [record.execution_id for record in chosen] == ["alone"]


def test_a_name_that_means_two_things_has_to_say_which(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", summary(label="last", name="labelled", timestamp=1.6e9))
    do(capsys, workspace, "baseline", "set", "of-old", "of-new")
    for word, choices in (
        ("of-old", "label:of-old or baseline:of-old"),
        ("last", "run:last or label:last"),
    ):
        with pytest.raises(UsageError, match=f"say {choices}"):
            Results(workspace, print).select(word)
    assert len(Results(workspace, print).select("label:last")) == 1


def test_a_baseline_takes_trials_that_were_correct_and_of_a_good_grade(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def made(name: str, **facts: Any) -> dict[str, Any]:
        document = summary(name=name, label="mixed", **facts)
        document["perfrun"]["quality"]["grade"] = facts.get("method", "x")[-1].upper()
        return document

    good, poor = "pkg.cases.Cases.a", "pkg.cases.Cases.d"  # their grades
    write(
        workspace / "output",
        *(made(f"good-{at}", method=good) for at in range(3)),
        made("disturbed", method=good, disturbed=True),
        made("wrong", method=good, status="out_of_bounds"),
        made("crashed", method=good, status="crashed"),
        *(made(f"poor-{at}", method=poor) for at in range(2)),  # as always on this machine
        summary(name="missed", label="all-wrong", status="out_of_bounds"),
    )
    assert main(["baseline", f"--workspace={workspace}", "set", "b", "mixed"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("baseline b: 5 trials of 2 methods, ")
    assert said.err.splitlines() == [
        "perfrun: 1 trial left out: failed or did not end",
        "perfrun: 1 trial left out: missed a bound of its figures",
        "perfrun: 1 trial left out: disturbed, or of grade D or worse",
    ]
    assert main(["baseline", f"--workspace={workspace}", "set", "b", "all-wrong"]) == 2
    assert "each trial of all-wrong has missed a bound" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["last", "", "../x", "a/b", ".x", "-x", "a b", "x" * 101, "é"])
def test_only_plain_names_are_taken(
    name: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["baseline", f"--workspace={workspace}", "set", "--", name, "of-old"]) == 2
    assert not (workspace / "baselines").exists()
    assert capsys.readouterr().err.count("\n") == 1


def test_what_is_gone_is_said_and_a_store_still_has_it(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"--store={tmp_path / 'team.db'}"
    assert main(["index", f"--workspace={workspace}", store]) == 0
    capsys.readouterr()
    do(capsys, workspace, "baseline", "set", "b", "of-old")
    shutil.rmtree(next((workspace / "output").glob("old-0*")))
    assert len(Results(workspace, print).select("b")) == 5
    assert "1 of its 6 trials are gone" in capsys.readouterr().out
    shutil.rmtree(workspace / "output")
    with pytest.raises(UsageError, match="all of its 6 trials are gone"):
        Results(workspace, print).select("b")
    assert len(Results(workspace, print, store.partition("=")[2]).select("b")) == 6


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"version": 9, "trials": []}', b"\xff"])
def test_a_broken_file_is_one_line_and_nothing_is_pruned_meanwhile(
    content: bytes, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "baselines").mkdir()
    (workspace / "baselines" / "b.json").write_bytes(content)
    for words in (
        ("compare", "b", "last"),
        ("prune", "--older_than=1h"),
        ("baseline", "list"),
    ):
        assert main([*words, f"--workspace={workspace}"]) == 2
        assert "b.json" in capsys.readouterr().err
    assert len(list((workspace / "output").iterdir())) == 12
    assert main(["baseline", "rm", "b", f"--workspace={workspace}"]) == 0
    assert main(["prune", "--older_than=1h", f"--workspace={workspace}"]) == 0
    assert not list((workspace / "output").iterdir())


def test_what_a_baseline_names_is_kept_by_prune_pairs_too(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm = workspace / "ab" / "a" / "output"
    write(arm, *trials([1.0, 1.1], run_id="pairs", timestamp=1.7e9))
    write(workspace / "ab" / "b" / "output", *trials([1.0], run_id="others", timestamp=1.7e9))
    assert main(["baseline", "set", "b", "of-old", str(arm), f"--workspace={workspace}"]) == 0
    capsys.readouterr()
    status, found = do(capsys, workspace, "prune", "--older_than=1h")
    assert (status, found["trials"], found["kept"], found["of_baselines"]) == (0, 6, 6, 6)
    assert {path.name[:3] for path in (workspace / "output").iterdir()} == {"old"}
    assert len(list(arm.iterdir())) == 2
    assert not list((workspace / "ab" / "b" / "output").iterdir())


def test_a_baseline_is_replaced_and_removed_and_its_results_stay(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"--workspace={workspace}"
    assert main(["baseline", "set", "b", "of-old", place]) == 0
    assert main(["compare", "b", "of-old", place]) == 0
    assert "6 trials are in both BASE and NEW" in capsys.readouterr().err
    assert main(["baseline", "set", "b", "of-new", "old-0", place]) == 0
    assert "7 trials of 1 method, of 2023-11-1" in (said := capsys.readouterr().out)
    assert "before it was 6 trials" in said
    assert main(["baseline", "rm", "c", "b", place]) == 2  # none is removed for a wrong one
    assert main(["baseline", "list", place]) == 0
    assert "of-new old-0" in capsys.readouterr().out
    assert main(["baseline", "rm", "b", place]) == 0
    assert main(["compare", "b", "last", place]) == 2
    assert len(list((workspace / "output").iterdir())) == 12
    for wrong in (["sett", "x"], ["list", "b"], ["rm"], ["set"], ["set", "b", "nothing"]):
        capsys.readouterr()
        assert main(["baseline", *wrong, place]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("ab", "--benchmark_methods=a.B.c"),
        ("bisect", "--good=aaaa", "--bad=bbbb", "--benchmark_methods=a.B.c"),
        ("versus", "--frameworks=torch,jax"),
        ("dlbs", "--model=alexnet", "--batch_size=1"),
    ],
)
def test_commands_that_compare_by_themselves_take_no_baseline(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, f"--workspace={tmp_path / 'ws'}", "--baseline=v1"]) == 2
    assert "takes no --baseline" in capsys.readouterr().err
    assert not (tmp_path / "ws").exists()
