"""`perfrun nightly --check` looks up what a suite names, and says what it does not look up."""

from __future__ import annotations

from pathlib import Path

from gitrepos import make_repository
from worlds import World, strict

HEAD = "from perfrun import Benchmark\nclass Here(Benchmark):\n    def fast(self): pass\n"


def test_repositories_branches_environments_and_methods_are_looked_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    remote = tmp_path / "theirs.git"
    [commit] = make_repository(remote, [{"theirs.py": HEAD}])
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "here.py").write_text(HEAD)
    suite = tmp_path / "suite.toml"
    url = f"file://{remote}"
    good = f"""
python_path = ["./code", "theirs"]
[[repos]]
url = "{url}"
branch = "main"
commit = "{commit}"
[[methods]]
name = "here.Here.fast"
[[methods]]
name = "here.Here.filter:f.*"
[[methods]]
name = "theirs.Here.slow"
"""
    suite.write_text(good)
    words = [world.python, world.entry, "nightly", str(suite), "--check"]
    done = world.run_words(words)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[4:] == [
        f"not looked up: commit {commit} of {url}, which only a fetch can tell",
        "not looked up: theirs.Here.slow, which may lie in a checkout",
    ]
    assert not (tmp_path / "workspace").exists()  # nothing was fetched
    bad = good.replace('"main"', '"mian"').replace("Here.fast", "Here.fats")
    other = '[[repos]]\nurl = "file:///no/such.git"\n'
    suite.write_text(f'{bad}{other}[[environments]]\nname = "old"\npython = "/bin/true"\n')
    done = world.run_words([*words, "--format=json"])
    assert done.code == 2
    assert strict(done.stdout)["problems"] == [
        f"{url}: branch or tag 'mian' is not there",
        "file:///no/such.git: '/no/such.git' does not appear to be a git repository",
        (
            "old: --python=/bin/true: does not work as an interpreter (exit status 0); "
            "name a Python 3.8 or newer"
        ),
    ]
    suite.write_text(bad)
    done = world.run_words(words)
    assert done.stderr == (
        f"perfrun: {suite}: {url}: branch or tag 'mian' is not there\n"
        f"perfrun: {suite}: default: 'here.Here.fats': here.Here has no method 'fats'; "
        "did you mean fast?\n"
    )
