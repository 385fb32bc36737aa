"""Questions to the environment under test, asked of real throw-away workers."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from perfrun import __version__
from perfrun.errors import UsageError
from perfrun.launchers.local import LocalLauncher, LocalService
from perfrun.options.plan import parse_selectors
from perfrun.run import environment
from perfrun.run.environment import (
    FlagsRefused,
    Paths,
    Service,
    check_flags,
    describe,
    discover,
    expand,
    upload,
)

LOCAL = LocalLauncher(sys.executable)
CASES = '''
from perfrun import Benchmark

class Cases(Benchmark):
    def train(self):
        """Train it."""
    def train_long(self): pass
    def evaluate(self): pass

setattr(Cases, "made.small", lambda self: None)

def function(): pass
'''


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with modules that work, raise, crash, print and define flags."""
    folder = tmp_path / "co de's\n"
    folder.mkdir()
    sources = {
        "cases": CASES,
        "raises": "raise ValueError('at import')",
        "leaves": "import sys; sys.exit(4)",
        "crashes": "import os, signal; print('last words', flush=True); os.kill(os.getpid(), 11)",
        "flagged": "from absl.flags import *\nDEFINE_integer('batch_size', 8, '', lower_bound=1)",
        "uploads": """
import json, os
def ok(summary): open(os.environ["UPLOADED"], "w").write(json.dumps(summary))
def fails(summary): raise RuntimeError("no network")
def dies(summary): os._exit(9)
""",
    }
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    return folder


def paths(code: Path) -> Paths:
    return Paths(first=(str(code),))


def names(code: Path, *methods: str) -> list[str]:
    selectors = parse_selectors(list(methods))
    return [method.text for method in expand(LOCAL, selectors, paths(code))]


def test_the_environment_is_described_with_its_distributions() -> None:
    with Service(LOCAL, {"action": "describe"}, Paths()) as service:
        found = describe(service)
    assert found.python["version"] == ".".join(map(str, sys.version_info[:3]))
    assert found.python["executable"] == sys.executable
    assert found.distributions["pytest"] == pytest.__version__
    assert list(found.distributions) == sorted(found.distributions)
    assert found.distributions_sha256 is not None
    assert len(found.distributions_sha256) == 64


def test_names_versions_and_commits_come_from_the_metadata_folders(tmp_path: Path) -> None:
    site = tmp_path / "site"
    commit = "0123456789abcdef0123456789abcdef01234567"
    for folder in ("Some_Pkg-1.0.dist-info", "old.egg-2.5-py3.11.egg-info", "notes-info", "a.txt"):
        (site / folder).mkdir(parents=True)
    (site / "Some_Pkg-1.0.dist-info" / "direct_url.json").write_text(
        json.dumps({"url": "https://h/r", "vcs_info": {"vcs": "git", "commit_id": commit}})
    )
    with Service(
        LOCAL, {"action": "describe"}, Paths(first=(str(site), str(tmp_path / "missing")))
    ) as service:
        found = describe(service)
    assert found.distributions["some-pkg"] == "1.0"
    assert found.direct_url_commits == {"some-pkg": commit}


def test_an_environment_without_perfrun_or_anything_else_will_do(
    tmp_path: Path, code: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    without = subprocess.run([python, "-c", "import perfrun"], cwd="/", capture_output=True)
    assert without.returncode != 0
    with Service(LocalLauncher(python), {"action": "describe"}, Paths()) as service:
        found = describe(service)
    assert found.python["prefix"] == str(tmp_path / "bare")
    assert found.distributions == {}
    assert (
        expand(LocalLauncher(python), parse_selectors(["cases.Cases.filter:ev"]), paths(code))[
            0
        ].name
        == "evaluate"
    )
    with pytest.raises(UsageError, match="no absl-py") as caught:
        check_flags(LocalLauncher(python), ["cases"], ["--x"], paths(code))
    assert not isinstance(caught.value, FlagsRefused)  # another machine may have it


def test_two_environments_that_differ_have_different_hashes(tmp_path: Path) -> None:
    hashes: list[str | None] = []
    for version in ("1.0", "1.1", "1.1"):
        site = tmp_path / f"site{len(hashes)}"
        (site / f"pkg-{version}.dist-info").mkdir(parents=True)
        with Service(LOCAL, {"action": "describe"}, Paths(first=(str(site),))) as service:
            hashes.append(describe(service).distributions_sha256)
    assert hashes[0] != hashes[1] == hashes[2]


def test_an_interpreter_that_cannot_be_started_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--python=/no/such/python"):
        Service(LocalLauncher("/no/such/python"), {"action": "describe"}, Paths())


def test_an_interpreter_that_does_not_work_is_a_usage_error_with_its_last_words(
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho libpython is missing >&2\nexit 127\n")
    python.chmod(0o755)
    with (
        Service(LocalLauncher(str(python)), {"action": "describe"}, Paths()) as service,
        pytest.raises(UsageError, match=r"exit status 127: libpython is missing") as caught,
    ):
        describe(service)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("program", ["/bin/echo", "/bin/false"])
def test_a_program_that_is_no_interpreter_is_a_usage_error_that_names_it(program: str) -> None:
    with (
        Service(LocalLauncher(program), {"action": "describe"}, Paths()) as service,
        pytest.raises(UsageError, match=f"--python={program}: does not work"),
    ):
        describe(service)


def test_an_interpreter_that_is_too_old_is_refused(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        f"exec '{sys.executable}' -c 'import json, sys; order = json.load(open(sys.argv[2])); "
        'json.dump({"python": {"version": "3.7.16"}}, open(order["answer"], "w"))\' "$@"\n'
    )
    python.chmod(0o755)
    with (
        Service(LocalLauncher(str(python)), {"action": "describe"}, Paths()) as service,
        pytest.raises(UsageError, match=r"is Python 3\.7\.16; 3\.8 or newer is needed"),
    ):
        describe(service)


def test_a_service_leaves_no_file_and_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Service(LOCAL, {"action": "describe"}, Paths()) as service:
        assert len(list(tmp_path.iterdir())) == 1
        serving = service._serving
        assert isinstance(serving, LocalService)
    assert not list(tmp_path.iterdir())
    assert serving._code is not None
    assert not Path(f"/proc/{serving.pid}").exists()


def test_a_worker_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "TIMEOUT_S", 0.3)
    (tmp_path / "hangs.py").write_text("import time; time.sleep(600)")
    (answer,) = discover(LOCAL, [{"module": "hangs"}], Paths(first=(str(tmp_path),)))
    assert "no answer in 0.3 s" in answer["error"]


def test_methods_are_named_as_given_and_filters_in_alphabetical_order(code: Path) -> None:
    assert names(code, "x.Y.z", "cases.Cases.filter:train|made", "cases.Cases:train") == [
        "x.Y.z",  # not looked at before its trial
        "cases.Cases:made.small",  # a dot in the name needs the colon
        "cases.Cases.train",
        "cases.Cases.train_long",
        "cases.Cases:train",
    ]


def test_without_a_filter_no_worker_is_needed() -> None:
    selectors = parse_selectors(["a.B.c"])
    (method,) = expand(LocalLauncher("/no/such/python"), selectors, Paths())
    assert (method.module, method.class_name, method.name) == ("a", "B", "c")


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        ("cases.Cases.filter:nothing", "matches no method"),
        ("cases.Missing.filter:.*", "cases has no class Missing; it has Cases"),
        ("cases.function.filter:.*", "cases has no class function"),
        ("missing.Cases.filter:.*", "ModuleNotFoundError"),
        ("raises.Cases.filter:.*", "ValueError: at import"),
        ("leaves.Cases.filter:.*", "SystemExit: 4"),
        ("crashes.Cases.filter:.*", "signal 11: last words"),
    ],
)
def test_a_filter_that_finds_nothing_says_why(code: Path, selector: str, says: str) -> None:
    with pytest.raises(UsageError, match="--benchmark_methods") as caught:
        names(code, selector)
    assert says in str(caught.value)
    assert selector in str(caught.value)


def test_a_filter_may_find_nothing_when_that_is_allowed(code: Path) -> None:
    selectors = parse_selectors(["cases.Cases.filter:nothing"])
    assert expand(LOCAL, selectors, paths(code), allow_empty=True) == ()


def test_a_module_that_kills_the_worker_costs_its_own_answer_only(code: Path) -> None:
    targets = [{"module": name} for name in ("cases", "crashes", "raises", "crashes", "cases")]
    answers = discover(LOCAL, targets, paths(code))
    assert [answer["target"] for answer in answers] == targets
    assert ["error" in answer for answer in answers] == [False, True, True, True, False]
    assert answers[0]["methods"] == answers[4]["methods"]
    docs = {item["method"]: item["doc"] for item in answers[0]["methods"]}
    assert docs["train"] == "Train it."


def test_flags_that_the_module_defines_are_fine(code: Path) -> None:
    check_flags(LOCAL, ["flagged"], ["--batch_size=16"], paths(code))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--batch_sise=16"], "batch_size"),  # the nearest
        (["--batch_size=many"], "batch_size"),
        (["--batch_size=0"], "batch_size"),
        (["stray"], "stray"),
    ],
)
def test_wrong_flags_are_an_error_before_the_first_trial(
    code: Path, flags: list[str], says: str
) -> None:
    with pytest.raises(FlagsRefused, match="flagged") as caught:
        check_flags(LOCAL, ["flagged"], ["--batch_size=8"], paths(code), others=[flags])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_each_module_must_know_the_flags(code: Path) -> None:
    with pytest.raises(UsageError, match="cases"):
        check_flags(LOCAL, ["flagged", "cases"], ["--batch_size=16"], paths(code))


def test_the_flags_of_a_module_that_cannot_be_imported_are_its_trials_matter(code: Path) -> None:
    check_flags(LOCAL, ["raises"], ["--whatever=1"], paths(code))
    with pytest.raises(UsageError, match="crashes cannot be imported: signal 11"):
        check_flags(LOCAL, ["crashes"], ["--whatever=1"], paths(code))


def test_uploads_are_called_with_the_summary_and_failures_come_back(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPLOADED", str(tmp_path / "uploaded"))
    summary = tmp_path / "s.json"
    summary.write_text('{"a": "\\u00e9"}')
    functions = ["uploads.fails", "uploads.ok", "uploads.missing", "nowhere.f"]
    answers = upload(LOCAL, functions, summary, paths(code))
    assert [answer["method"] for answer in answers] == functions
    assert answers[0]["error"] == "RuntimeError: no network"
    assert answers[1]["error"] is None
    assert "AttributeError" in answers[2]["error"]
    assert "ModuleNotFoundError" in answers[3]["error"]
    assert json.loads((tmp_path / "uploaded").read_text()) == {"a": "é"}


def test_an_upload_that_kills_its_process_is_a_failure_of_all(code: Path, tmp_path: Path) -> None:
    summary = tmp_path / "s.json"
    summary.write_text("{}")
    answers = upload(LOCAL, ["uploads.ok", "uploads.dies"], summary, paths(code))
    assert len(answers) == 2
    assert all(answer["error"] for answer in answers)


def test_benchmarks_see_perfrun_but_not_its_libraries(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    (tmp_path / "looks.py").write_text(
        "import perfrun\n"
        f"assert perfrun.__version__ == {__version__!r}\n"
        "try:\n    import psutil\nexcept ImportError: pass\n"
        "else: raise AssertionError('sees the libraries of the harness')\n"
    )
    python = str(tmp_path / "bare" / "bin" / "python")
    (answer,) = discover(
        LocalLauncher(python), [{"module": "looks"}], Paths(first=(str(tmp_path),))
    )
    assert answer.get("error") is None
