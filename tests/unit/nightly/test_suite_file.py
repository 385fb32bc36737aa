"""Suite files: their meaning, and the lines of their mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perfrun.changes.budget import Budget
from perfrun.changes.creep import CreepRule
from perfrun.errors import UsageError
from perfrun.nightly.retention import Policy
from perfrun.nightly.suite import Bound, Night, Suite, units
from perfrun.nightly.suite_file import plan_of, read_suite

METHOD = '\n[[methods]]\nname = "pkg.cases.Cases.spin"\n'


def suite_of(folder: Path, text: str) -> Suite:
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    return read_suite(path)


def test_a_suite_says_all_that_a_night_needs(tmp_path: Path) -> None:
    suite = suite_of(
        tmp_path,
        f"""
        name = "models"
        owner = "team@example.com"
        deadline = "06:30"
        trials = 3
        timeout = 600
        python_path = ["bench"]
        [[repos]]
        url = "file:///srv/bench.git"
        branch = "main"
        [[environments]]
        name = "one"
        python = "{sys.executable}"
        allocator = "retain"
        [[environments]]
        name = "two"
        image = "perfrun/torch"
        memory = "4g"
        [[methods]]
        name = "pkg.cases.Cases.spin"
        environments = ["one"]
        precision = "2%"
        constructor_args = {{ size = 3 }}
        flags = ["--batch_size=8", "--name=a, b"]
        bounds = {{ wall_time = {{ max = 1.5 }}, "images per second" = {{ min = 2 }} }}
        [[methods]]
        name = "pkg.cases.Cases.filter:load.*"
        canary = true
        """,
    )
    assert suite.workspace == tmp_path / "workspace"
    assert [unit.name for unit in units(suite)] == ["one", "one#2", "two"]
    first, second, third = (plan_of(suite, unit, Night(night="n1")) for unit in units(suite))
    assert first.repetition.precision == 0.02
    assert first.constructor_args == {"size": 3}
    assert first.benchmark_flags == ("--batch_size=8", "--name=a, b")
    assert first.execution_label == "n1"
    assert [plan.allocator for plan in (first, third)] == ["retain", "default"]
    assert (second.num_trials, second.timeout_s, second.python) == (3, 600.0, sys.executable)
    assert third.container is not None
    assert third.container.image == "perfrun/torch"
    assert suite.methods[0].bounds == (
        Bound(metric="wall_time", high=1.5),
        Bound(metric="images per second", low=2),
    )
    assert suite.methods[1].canary


def test_each_setting_of_a_sweep_is_a_run_of_the_methods_that_know_its_flags(
    tmp_path: Path,
) -> None:
    suite = suite_of(
        tmp_path,
        """
        [sweep]
        batch = [1, 8]
        fast = [true]
        lr = [0.1]
        [[methods]]
        name = "pkg.cases.Cases.all"
        flags = ["--batch=4", "--seed=1"]
        [[methods]]
        name = "pkg.cases.Cases.one"
        sweep = ["lr"]
        [[methods]]
        name = "pkg.cases.Cases.none"
        sweep = []
        """,
    )
    found = [(unit.title, plan_of(suite, unit, Night(night="n"))) for unit in units(suite)]
    assert [(title, plan.benchmark_flags) for title, plan in found] == [
        (
            "default (batch=1 fast=true lr=0.1)",
            ("--seed=1", "--batch=1", "--fast=true", "--lr=0.1"),
        ),
        (
            "default#2 (batch=8 fast=true lr=0.1)",
            ("--seed=1", "--batch=8", "--fast=true", "--lr=0.1"),
        ),
        ("default#3 (lr=0.1)", ("--lr=0.1",)),
        ("default#4", ()),
    ]


def test_tonights_commits_are_asked_for_once_they_are_known(tmp_path: Path) -> None:
    suite = suite_of(
        tmp_path, f'[[repos]]\nurl = "file:///srv/bench.git"\nbranch = "main"\n{METHOD}'
    )
    (unit,) = units(suite)
    night = Night(night="n", pinned={"bench": "ab" * 20})
    assert plan_of(suite, unit, Night(night="n")).repos[0].git_hash is None
    assert plan_of(suite, unit, night).repos[0].git_hash == "ab" * 20


def test_a_method_with_a_number_of_trials_has_that_number(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, f'precision = "1%"\nmax_trials = 9\n{METHOD}trials = 2\n')
    assert suite.methods[0].rules.trials == 2


def test_retention_and_variables_are_read(tmp_path: Path) -> None:
    suite = suite_of(
        tmp_path,
        "[retention]\nkeep_nights = 9\nolder_than = '2d'\nunfinished_older_than = '1w'\n"
        f"[[environments]]\nname = 'e'\nenv = {{ OMP_NUM_THREADS = '4', B = 'x y' }}\n{METHOD}",
    )
    assert suite.retention == Policy(
        keep_nights=9, older_than_s=2 * 86400.0, unfinished_older_than_s=7 * 86400.0
    )
    plan = plan_of(suite, units(suite)[0], Night(night="n"))
    assert dict(plan.env) == {"OMP_NUM_THREADS": "4", "B": "x y"}


def test_the_baseline_of_creep_and_its_bound_are_read(tmp_path: Path) -> None:
    def rule(text: str) -> CreepRule | None:
        return suite_of(tmp_path, text + METHOD).creep

    assert rule("") is None
    assert rule("creep_baseline = 'v1'\n") == CreepRule(baseline="v1", bound=0.05)
    assert rule("creep_baseline = '2026-06-01'\ncreep_bound = '3%'\n") == CreepRule(
        baseline="2026-06-01", bound=0.03
    )


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("", None),
        ("confirm = false\n", None),
        ("confirm = true\n", Budget(most=10)),
        ("[confirm]\n", Budget(most=10)),
        (
            "[confirm]\nmax_pairs = 12\ntime_budget = '20m'\nmax_changes = 3\n",
            Budget(max_pairs=12, time_s=1200.0, most=3),
        ),
    ],
)
def test_changes_are_confirmed_as_the_suite_says(
    tmp_path: Path, text: str, budget: Budget | None
) -> None:
    assert suite_of(tmp_path, text + METHOD).confirm == budget


def test_a_clone_is_a_folder_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    suite = suite_of(tmp_path, "[[repos]]\nurl = '/r.git'\nclone = 'full'\n" + METHOD)
    assert suite.repos[0].clone == tmp_path / "full"


def test_secrets_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "s3cret")
    suite = suite_of(tmp_path, f'webhook = "https://example.com/${{HOOK_TOKEN}}"\n{METHOD}')
    assert (suite.webhook, suite.webhook_format) == ("https://example.com/s3cret", "json")
    assert suite_of(tmp_path, f"webhook_format = 'slack'\n{METHOD}").webhook_format == "slack"


WRONG = (
    ("name = 3\n" + METHOD, 1, "name: must be text, not 3"),
    ("\n\ntrails = 3\n" + METHOD, 3, "unknown key 'trails'; did you mean 'trials'?"),
    ("trials = true\n" + METHOD, 1, "trials: must be a whole number, not True"),
    ("trials = 0\n" + METHOD, 1, "trials = 0: must be 1 or more"),
    ("# a comment\nprecision = 'abc'\n" + METHOD, 2, "precision = abc: write 1% or 0.01"),
    (METHOD + "max_trials = 7\n", 4, "needs precision; without it, trials is the number"),
    (METHOD + METHOD + "owner = 'x'\n", 6, "'pkg.cases.Cases.spin' is named twice for default"),
    ("deadline = 'soon'\n" + METHOD, 1, "write 7h, 90m or a time of day"),
    ("deadline = '99999999999999h'\n" + METHOD, 1, "write 7h, 90m or a time of day"),
    ("webhook = 'http://[::1'\n" + METHOD, 1, "must be an http:// or https:// url"),
    ('workspace = "a\\u0000b"\n' + METHOD, 1, "workspace: holds a null character"),
    (
        *("webhook_format = 'irc'\n" + METHOD, 1),
        "webhook_format = irc: must be one of json, slack, teams, discord",
    ),
    ("webhook = 'ftp://x'\n" + METHOD, 1, "must be an http:// or https:// url"),
    ("webhook = 'https://x/${NOT_SET_ANYWHERE}'\n" + METHOD, 1, "NOT_SET_ANYWHERE is not set"),
    ("store = 'mysql://x'\n" + METHOD, 1, "must be a file"),
    ("repos = 'x'\n" + METHOD, 1, "write a table for each: [[repos]]"),
    ("[[repos]]\nbranch = 'x'\n" + METHOD, 1, "[[repos]] needs url"),
    ("[[repos]]\nurl = '-x'\n" + METHOD, 2, "not a url that perfrun gives to git"),
    ("[[repos]]\nurl = '/r.git'\ncommit = 'HEAD'\n" + METHOD, 3, "is not a commit hash"),
    ("[[repos]]\nurl='/a/r.git'\n[[repos]]\nurl='/b/r.git'\n" + METHOD, 4, "checked out as 'r'"),
    ("[output]\njunitt = 'x'\n" + METHOD, 2, "did you mean 'junit'?"),
    ("[output]\n\njunit = 1\n" + METHOD, 3, "junit: must be text"),
    ("[[environments]]\nname='e'\npython='/nope'\n" + METHOD, 3, "python = /nope: is not there"),
    ("[[environments]]\nname='e'\ncpuset='0'\n" + METHOD, 3, "cpuset: needs an image"),
    ("[[environments]]\nname='e'\nallocator='hoard'\n" + METHOD, 3, "must be one of default"),
    (
        "[[environments]]\nname='e'\npython='python3'\nimage='i'\n" + METHOD,
        4,
        "an interpreter (python) or an image, not both",
    ),
    (
        "[[environments]]\nname='e'\n[[environments]]\nname='e'\n" + METHOD,
        4,
        "two environments 'e'",
    ),
    (
        "[[environments]]\nname='f'\n[[environments]]\nname='e'\n"
        + METHOD
        + "environments=['e']\n",
        1,
        "no method runs in environment 'f'",
    ),
    (METHOD + "environments = [\n  'dafault',\n]\n", 4, "did you mean 'default'?"),
    (METHOD + "bounds.wall_time.maxx = 1\n", 4, "did you mean 'max'?"),
    (METHOD + "bounds.wall_time = { min = 2, max = 1 }\n", 4, "min is more than max"),
    (METHOD + "flags = ['--a', 3]\n", 4, "flags: 3 is not text"),
    (METHOD + "constructor_args = { when = 2026-01-01 }\n", 4, "not JSON"),
    ("[retention]\nkeep_nights = 0\n" + METHOD, 2, "keep_nights: must be 1 or more"),
    ("[retention]\nolder_than = '1y'\n" + METHOD, 2, "write 90d"),
    ("[retention]\n\nunfinished_older_than = '1y'\n" + METHOD, 3, "write 90d"),
    ("creep_baseline = 'v1'\ncreep_bound = 5\n" + METHOD, 2, "creep_bound = 5.0: must be more"),
    ("bisect_budget = '1h'\n" + METHOD, 1, "bisect_budget is for changes that pairs have conf"),
    ("creep_bound = '5%'\n" + METHOD, 1, "creep_bound is of creep_baseline: give that, too"),
    ("confirm = 3\n" + METHOD, 1, "confirm: must be true or false or a table, not 3"),
    ("[confirm]\nmax_pairs = 7\n" + METHOD, 2, "max_pairs = 7: must be a whole number, 8 or more"),
    ("[confirm]\ntime_budget = 'soon'\n" + METHOD, 2, "write seconds, or 20m"),
    ("[confirm]\nmax_trials = 7\n" + METHOD, 2, "unknown key 'max_trials'"),
    ("[[repos]]\nurl = '/r.git'\nclone = 'gone'\n" + METHOD, 3, "is not a folder"),
    ("[[environments]]\nname='e'\nenv = { A = 1 }\n" + METHOD, 3, "A: must be text, not 1"),
    ("[[methods]]\nname = 'spin'\n", 2, "is not module.Class.method"),
    ("[[methods]]\n\nowner = 'x'\n", 1, "[[methods]] needs name"),
    ("[[methods]]\nname = 'a.B.filter:('\n", 2, "is not a regular expression"),
    ("name = 'x'\nname = 'y'\n" + METHOD, 2, "not TOML"),
    ("[output]\n[output]\n" + METHOD, 2, "not TOML"),
    ("'images per second' = 3\n" + METHOD, 1, "unknown key 'images per second'"),
    ("'a` - at `$.b.c[0]' = 3\n" + METHOD, 1, ": "),
    (METHOD + 'bounds."a\\nb" = {}\n', 4, "bounds.a\\nb: needs min or max"),
    ("name = 'a b'\n" + METHOD, 1, "name = 'a b': write letters, digits"),
    ("methods = []\n", 1, "methods: is empty"),
    ("methods = [3]\n", 1, "write a table for each: [[methods]]"),
    ("python_path = 'src'\n" + METHOD, 1, "python_path: must be a list, not 'src'"),
    ("output = 3\n" + METHOD, 1, "output: must be a table, not 3"),
    ("owner = { a = 1 }\n" + METHOD, 1, "owner: must be text, not a table"),
    ("[sweep]\n\nbatch = 8\n" + METHOD, 3, "batch: must be a list, not 8"),
    ("[sweep]\nbatch = []\n" + METHOD, 2, "batch: has no values"),
    ("[sweep]\nbatch = [1, '1']\n" + METHOD, 2, "batch: the value 1 is there twice"),
    ("[sweep]\nbatch = ['']\n" + METHOD, 2, "batch: a value is empty"),
    ("[sweep]\nbatch = [[1]]\n" + METHOD, 2, "batch: "),
    ("[sweep]\n'--batch' = [1]\n" + METHOD, 2, "batch: is no name of a flag"),
    ("sweep = ['batch=1']\n" + METHOD, 1, "sweep: must be a table, not a list"),
    ("[sweep]\nbatch = [1]\n" + METHOD + "sweep = ['bach']\n", 6, "did you mean 'batch'?"),
    ("[sweep]\nbatch = [1]\n" + METHOD + "sweep = []\n", 2, "every method's own `sweep`"),
    (f"[sweep]\na = {[*range(101)]}\nb = {[*range(100)]}\n" + METHOD, 1, "more than 10,000"),
    ("timeout = '5m'\n" + METHOD, 1, "timeout: must be a number, not '5m'"),
    ("timeout = nan\n" + METHOD, 1, "timeout = nan"),
    ("precision = nan\n" + METHOD, 1, "precision = nan: must be more than 0"),
    ("precision = false\n" + METHOD, 1, "precision: must be a number or text, not False"),
    (f"trials = 0x{'f' * 5000}\n" + METHOD, 1, "trials: must be 9223372036854775807 or less"),
    (f"owner = 0x{'f' * 5000}\n" + METHOD, 1, "owner: must be text, not a whole number"),
    ("workspace = ''\n" + METHOD, 1, "workspace: is empty"),
    ("workspace = '~nobody.here/x'\n" + METHOD, 1, "there is no such home"),
    ("[[repos]]\nurl = ' '\n" + METHOD, 2, "url: is empty"),
    ("[[repos]]\nurl = '/r.git'\nbranch = 'a,b'\n" + METHOD, 3, "a comma or semicolon"),
    ("[[environments]]\nname = 'a b'\n" + METHOD, 2, "name: write letters, digits"),
    ("[[methods]]\nname = 'a.B.c,a.B.d'\n", 2, "one method or filter, without commas"),
    (METHOD + "bounds.wall_time = { max = nan }\n", 4, "bounds.wall_time: nan is no bound"),
    (METHOD + "bounds.wall_time = 3\n", 4, "wall_time: must be a table, not 3"),
    (METHOD + "bounds.wall_time = {}\n", 4, "bounds.wall_time: needs min or max"),
    (METHOD + "constructor_args = { x = nan }\n", 4, "not JSON: Out of range"),
    (f"a{'.a' * 1_500} = 1\n" + METHOD, 1, "unknown key 'a'"),
    (f"name.a{'.a' * 1_500} = 1\n" + METHOD, 1, "name: must be text, not a table"),
    ("methods = [\n", 1, "not TOML"),
)


# However TOML lets a key be written, and whatever stands around it.
PLACES = (
    ("{m}trails = 3\n[[repos]]\nurl = '/r.git'\n{m}", 4),  # arrays of tables in turns
    ("{m}[[repos]]\nurl = '/r.git'\n{m}trails = 3\n", 9),
    ('owner = """\ntrails = 1\n[[methods]]\n"""\ntrails = 3\n{m}', 5),
    ('owner = """\\"""\\\\""""\ntrails = 3\n{m}', 2),
    ("owner = '''\n\\'\n[x]''''\n\ntrails = 3\n{m}", 5),
    ('owner = "a # b = [\\" {{"  # c = [ "\n  trails = 3\n{m}', 2),
    ("python_path = [ # ]\n  'a', # ' [\n  '''\n]''',\n]\ntrails = 3\n{m}", 6),
    ("{m}constructor_args = {{ a = [\n1,\n2 ] }}\ntrails = 3\n", 7),
    ("{m}constructor_args = {{ trails = 3 }}\n 'trails' \t= 3\n", 5),
    ('"tr\\u0061ils" = 3\n{m}', 1),
    ("\noutput . trails = 3\n{m}", 2),
    ("[ output . trails ]\n{m}", 1),
    ("[retention]\n[output]\n\n[output.trails]\nx = 1\n{m}", 4),
    ("{m}[methods.bounds.'a = 1']\nmin = 2\ntrails = 3\n", 6),
    ('{m}[methods.bounds]\n"a#".min = 2\n"a#".trails = 3\n', 6),
    ("{m}[methods.constructor_args]\ntrails = 3\n[[methods]]\nname = 'a.B.c'\ntrails = 3\n", 8),
)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("text", "line"), PLACES)
def test_the_line_is_that_of_the_key_however_it_is_written(
    tmp_path: Path, text: str, line: int, end: str
) -> None:
    path = tmp_path / "suite.toml"
    path.write_bytes(text.format(m=METHOD).replace("\n", end).encode())
    with pytest.raises(UsageError, match="unknown key 'trails'") as caught:
        read_suite(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_the_line_is_found_in_a_suite_of_thousands_of_methods(tmp_path: Path) -> None:
    methods = "".join(f"[[methods]]\nname = 'pkg.m.C.m{n}'\n" for n in range(5000))
    with pytest.raises(UsageError, match=r"suite\.toml:10001: unknown key 'ownr'"):
        suite_of(tmp_path, methods + "ownr = 'x'\n" + METHOD)


def test_what_has_no_end_or_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^/dev/zero: is larger than 16 MiB"):
        read_suite(Path("/dev/zero"))
    with pytest.raises(UsageError, match=r": cannot be read: Is a directory$"):
        read_suite(tmp_path)


def test_a_suite_may_come_through_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "models.toml")
    writer = threading.Thread(target=(tmp_path / "models.toml").write_text, args=(METHOD,))
    writer.start()
    suite = read_suite(tmp_path / "models.toml")
    writer.join()
    assert suite.name == "models"


def test_arguments_that_are_nested_deeply_are_taken_or_refused(tmp_path: Path) -> None:
    # How deep JSON may be depends on the version of Python.
    text = METHOD + f"constructor_args.a{'.a' * 1_500} = 1\n"
    try:
        suite_of(tmp_path, text)
    except UsageError as error:
        assert re.fullmatch(r".*/suite\.toml:4: constructor_args: .*", str(error))  # noqa: PT017


def test_a_suite_that_is_nested_too_deeply_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"suite\.toml: not TOML: too deeply nested$"):
        suite_of(tmp_path, "a = " + "[" * 99_999)


@pytest.mark.parametrize(("text", "line", "says"), WRONG, ids=[says for _, _, says in WRONG])
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        suite_of(tmp_path, text)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'suite.toml'}:{line}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml: cannot be read: No such file"):
        read_suite(tmp_path / "gone.toml")
    (tmp_path / "latin.toml").write_bytes(b"# fine\nname = '\xe9'\n")
    with pytest.raises(UsageError, match=r"latin\.toml:2: not UTF-8"):
        read_suite(tmp_path / "latin.toml")


def test_a_suite_without_methods_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"suite\.toml: has no \[\[methods\]\]"):
        suite_of(tmp_path, "name = 'x'\n")


def test_relative_paths_begin_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b").mkdir()
    python = tmp_path / "a b" / "python"
    python.symlink_to(sys.executable)
    monkeypatch.chdir(os.sep)
    suite = suite_of(
        tmp_path / "a b",
        f"workspace = 'w'\n[output]\njunit = 'out/j.xml'\n[[environments]]\nname='e'\n"
        f"python='./python'\n{METHOD}",
    )
    assert suite.workspace == tmp_path / "a b" / "w"
    assert suite.outputs.junit == tmp_path / "a b" / "out" / "j.xml"
    assert plan_of(suite, units(suite)[0], Night(night="n")).python == str(python)


def test_only_what_reads_a_suite_imports_its_schema() -> None:
    commands = "perfrun.benchmark, perfrun.options.command_line"
    modules = f"{commands}, perfrun.nightly.prune, perfrun.nightly.night_state"
    code = f"import sys, {modules}; sys.exit('msgspec' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
