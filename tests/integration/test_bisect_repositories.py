"""`perfrun bisect` over two repositories that moved together, and into the merge that did it.

Real commits and processes; the figures are given, so that few pairs decide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import schemas

from tests.gitrepos import git, make_repository
from tests.worlds import Finished, World, strict

SPIN = "bench.cases.Cases.spin"
SOURCE = """
import random
from perfrun import Benchmark
from bench.settings import A
from kernels import B


class Cases(Benchmark):
    def spin(self):
        cpu_s = (A + B) * (1 + random.random() * 0.002)
        self.report_benchmark(wall_time=cpu_s, metrics=[{"name": "cpu_s", "value": cpu_s}])
"""


def commit(repo: Path, message: str, **files: str) -> str:
    for name, text in files.items():
        (repo / f"{name}.py").write_text(text, encoding="utf-8")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", message)
    return git(repo, "rev-parse", "HEAD")


def bisect(world: World, *words: str) -> tuple[Finished, Any]:
    done = world.run_words([world.python, world.entry, "bisect", *words], patience_s=900.0)
    assert done.stdout, done.stderr
    answer = strict(done.stdout)
    schemas.check("bisect", answer)
    schemas.check_lines("search-log", Path(answer["folder"]) / "search.jsonl")
    return done, answer


def test_the_repository_the_merge_and_the_commit_within_it_are_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    one, two = tmp_path / "one", tmp_path / "two"
    bench = {"bench/__init__.py": "", "bench/cases.py": SOURCE, "bench/settings.py": "A = 1.0\n"}
    ones = make_repository(one, [bench, {**bench, "n": "1"}])
    twos = make_repository(two, [{"kernels.py": "B = 1.0\n"}])
    git(two, "checkout", "-q", "-b", "faster")
    inside = commit(two, "the slow one", kernels="B = 1.5\n")
    git(two, "checkout", "-q", "main")
    git(two, "merge", "-q", "--no-ff", "-m", "Merge pull request #12 from x/faster", "faster")
    merge = git(two, "rev-parse", "HEAD")
    words = (
        *(f"--workspace={world.workspace}", f"--method={SPIN}", "--metric=cpu_s"),
        *(f"--git_repos={one.as_uri()},{two.as_uri()}", "--python_path=one,two"),
        *(f"--good=one={ones[0]},two={twos[0]}", f"--bad=two={merge},one={ones[-1]}"),
    )
    done, answer = bisect(world, *words, "--format=json", "--seed=1", "--into_merges")
    assert answer["status"] == "found", done.stderr
    assert done.code == 0
    assert answer["revisions"] == 3
    culprit, previous = answer["culprit"], answer["previous"]
    assert (culprit["name"], culprit["repository"]) == (merge, "two")
    assert culprit["commits"] == {"one": ones[-1], "two": merge}
    assert (previous["name"], previous["repository"]) == (ones[-1], "one")
    assert (culprit["is_merge"], culprit["pull_request"]) == (True, "#12")
    assert culprit["branch"] == "x/faster"
    found = answer["inside"]
    assert (found["status"], found["culprit"]["name"]) == ("found", inside)
    assert (found["previous"]["name"], found["inside"]) == (twos[0], None)
    assert [d["name"] for d in found["environment_differences"]] == ["two"]
    # With its answers on disk it is told again without a trial, to people this time.
    before = len(list(world.workspace.glob("bisect/*/?/output/*")))
    again = world.run_words(
        [world.python, world.entry, "bisect", *words, "--resume", "--into_merges"]
    )
    assert again.code == 0, again.stderr
    assert len(list(world.workspace.glob("bisect/*/?/output/*"))) == before
    assert f"two {merge[:12]} is the first slower or worse one" in again.stdout
    assert f"of      two, beside one {ones[-1][:12]}" in again.stdout
    assert "merges  pull request #12, branch x/faster\n" in again.stdout
    assert f"Inside the merge:\n{inside[:12]} is the first slower or worse one" in again.stdout


def test_a_search_between_two_results_takes_everything_from_their_files(tmp_path: Path) -> None:
    """Both ran with a variable and a second repository, which the command does not name."""
    world = World(tmp_path)
    one, two = tmp_path / "one", tmp_path / "two"
    bench = {"bench/__init__.py": "", "bench/cases.py": SOURCE}
    bench["bench/settings.py"] = "import os\nA = float(os.environ['SIZE'])\n"
    make_repository(one, [bench])
    twos = make_repository(
        two, [{"kernels.py": "B = 1.0\n"}, {"n": "1"}, {"kernels.py": "B = 1.5\n"}, {"n": "2"}]
    )
    place = f"--workspace={world.workspace}"

    def result(commit: str, size: str) -> str:
        repos = f"--git_repos={one.as_uri()},{two.as_uri()};;{commit}"
        words = (repos, "--python_path=one,two", f"--env=SIZE={size}", place, "--format=json")
        done = world.run_words([world.python, world.entry, *words, f"--benchmark_methods={SPIN}"])
        assert done.code == 0, done.stderr
        return str(world.summary_files()[-1])

    good, other, bad = result(twos[0], "1"), result(twos[0], "2"), result(twos[-1], "1")
    words = (place, "--metric=cpu_s", "--seed=1", "--format=json")
    done, answer = bisect(world, good, bad, *words)
    assert answer["status"] == "found", done.stderr
    assert (answer["method"], answer["culprit"]["name"]) == (SPIN, twos[2])
    assert answer["culprit"]["repository"] == "two"

    refused = world.run_words([world.python, world.entry, "bisect", other, bad, *words])
    assert refused.code == 2
    assert "differ in more than commits: SIZE 2 -> 1; --allow_differences" in refused.stderr
    elsewhere = f"--workspace={tmp_path / 'elsewhere'}"
    refused = world.run_words([world.python, world.entry, "bisect", good, bad, elsewhere])
    assert refused.code == 2
    assert "imported, not run in this workspace: to search its commits is to run" in refused.stderr
    assert not (tmp_path / "elsewhere" / "bisect").exists()
