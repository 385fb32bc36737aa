"""A plan fixes what its shards run: commits of branches, and copies of the suite's own code."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.fleet import planning
from perfrun.fleet.dispatch import shuffled
from perfrun.fleet.planning import copy_code, make_plan, with_sweep
from perfrun.fleet.shard_command import run_plan_of
from perfrun.nightly.suite import Suite
from perfrun.nightly.suite_file import read_suite
from perfrun.options.sweeps import parse_sweep
from perfrun.shards.plan_file import read_plan, write_plan
from tests.gitrepos import git, make_repository


def suite(folder: Path, more: str = "") -> Suite:
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "cases.py").write_text("old")
    path = folder / "suite.toml"
    path.write_text(
        f'name = "lab"\npython_path = ["./own", "bench"]\n{more}\n'
        '[[environments]]\nname = "one"\n[[environments]]\nname = "two"\n'
        '[[methods]]\nname = "cases.Cases.a"\ntrials = 3\nflags = ["--batch=4"]\n'
        '[[methods]]\nname = "cases.Cases.b"\nenvironments = ["two"]\n'
    )
    return read_suite(path)


def test_every_shard_is_one_method_with_its_own_rules_and_the_commit_of_now(tmp_path: Path) -> None:
    (commit,) = make_repository(tmp_path / "bench", [{"cases.py": "x = 1"}])
    repos = f'[[repos]]\nurl = "{(tmp_path / "bench").as_uri()}"\nbranch = "main"\n'
    one = suite(tmp_path, repos)
    notes: list[str] = []
    one = with_sweep(one, parse_sweep(["batch=1,8"]))
    plan = make_plan(
        one,
        1.0,
        rounds=2,
        engine="local",
        options={},
        notify=notes.append,
    )
    assert [(s.round, s.setting_text, s.environment, s.method[-1]) for s in plan.shards] == [
        (number, f"batch={batch}", environment, method)
        for number in (1, 2)
        for environment, method, batch in (
            ("one", "a", 1),
            ("one", "a", 8),
            ("two", "a", 1),
            ("two", "a", 8),
            ("two", "b", 1),
            ("two", "b", 8),
        )
    ]
    assert not plan.folder.exists()
    (tmp_path / "bench" / "cases.py").write_text("x = 2")
    git(tmp_path / "bench", "commit", "-q", "-a", "-m", "later")
    copy_code(one, plan.folder)
    (tmp_path / "own" / "cases.py").write_text("new")

    run = run_plan_of(plan, plan.shards[1], tmp_path / "attempt")
    assert run.workspace == tmp_path / "attempt"
    assert (run.num_trials, run.execution_label) == (3, plan.submission)
    assert [repo.git_hash for repo in run.repos] == [commit]
    assert run.benchmark_flags == ("--batch=8",)
    assert run.python_path == (str(plan.folder / "code" / "0"), "bench")
    assert (plan.folder / "code" / "0" / "cases.py").read_text() == "old"
    assert notes == [f"{(tmp_path / 'bench').as_uri()}: every shard has commit {commit[:12]}"]


def test_a_sweep_of_the_command_line_gives_its_values_to_the_methods_that_take_part(
    tmp_path: Path,
) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(
        "[sweep]\nbatch = [1, 8]\nlr = [0.1]\n"
        '[[methods]]\nname = "cases.Cases.a"\n'
        '[[methods]]\nname = "cases.Cases.b"\nsweep = ["lr"]\n'
    )
    one = with_sweep(read_suite(path), parse_sweep(["new=x", "batch=2"]))
    shards = planning.shards_of(one, "s", rounds=1, pinned={})
    assert [(s.method[-1], s.setting_text) for s in shards] == [
        ("a", "batch=2 lr=0.1 new=x"),  # in the order of the suite: it is part of the series
        ("b", "lr=0.1"),
    ]
    path.write_text('[[methods]]\nname = "cases.Cases.b"\nsweep = []\n')
    with pytest.raises(UsageError, match=r"no method of .* takes part in a sweep of batch"):
        with_sweep(read_suite(path), parse_sweep(["batch=2"]))


def test_only_code_is_copied_and_not_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = suite(tmp_path)
    for name in ("own/.git/x", "own/__pycache__/x", "own/other/runs/x", "own/deep/x"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "own" / "other" / "output").mkdir()
    (tmp_path / "own" / ".#cases.py").symlink_to("somebody@here.123:456")  # Emacs makes these
    copy_code(one, tmp_path / "there")
    copied = {str(p.relative_to(tmp_path / "there")) for p in (tmp_path / "there").rglob("*")}
    assert copied == {"code", "code/0", "code/0/cases.py", "code/0/deep", "code/0/deep/x"}
    monkeypatch.setattr(planning, "_MOST_CODE_FILES", 1)
    with pytest.raises(UsageError, match="more than 1 files"):
        copy_code(one, tmp_path / "too_much")


def test_each_node_runs_everything_in_an_order_of_its_own_with_the_canary_between(
    tmp_path: Path,
) -> None:
    one = suite(tmp_path, "")
    path = tmp_path / "suite.toml"
    path.write_text(path.read_text() + '[[methods]]\nname = "cases.Cases.c"\ncanary = true\n')
    one = read_suite(path)
    plan = make_plan(
        one,
        1.0,
        rounds=2,
        engine="slurm",
        options={},
        notify=print,
        nodes=("n1", "n2", "n3"),
    )
    write_plan(plan)
    assert read_plan(plan.folder) == plan
    by_node = {node: [s for s in plan.shards if s.node == node] for node in ("n1", "n2", "n3")}
    orders = {node: [(s.environment, s.method[-1]) for s in own] for node, own in by_node.items()}
    canary = ("one", "c")
    for own in orders.values():
        assert own[0] == own[-1] == canary
        assert sorted(own) == sorted(orders["n1"])
        assert own.count(("two", "b")) == 2
    assert len({tuple(own) for own in orders.values()}) == 3
    places = [[at for at, one in enumerate(own) if one == canary] for own in orders.values()]
    assert places[0] == places[1] == places[2]
    assert shuffled(plan, range(len(plan.shards))) == list(range(len(plan.shards)))
