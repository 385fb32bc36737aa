"""From words to a plan: every flag, what empty means, and one line for everything wrong."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from perfrun.errors import UsageError
from perfrun.options.command_line import DEFAULT_TIMEOUT_S, parse
from perfrun.options.flags import PERFZERO, PYTHON_VARIABLE
from perfrun.options.plan import RunPlan

M = "--benchmark_methods=pkg.mod.Class.method"
HASH = "869bd07c17ffeab8183e93dddd0e0aa7ada2dede"


def refused(*words: str, command: str = "run") -> str:
    """Return the one line that the command line is refused with."""
    with pytest.raises(UsageError) as caught:
        parse(words, command=command)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    return text


def flagfile(folder: Path, text: str, name: str = "flags") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_perfzeros_documented_local_command_line_works_unchanged() -> None:
    plan = parse(
        [
            "--gcloud_key_file_url=",
            f"--git_repos=https://host/models.git;benchmark;{HASH},https://host/data",
            "--python_path=models",
            "--benchmark_methods=official.r1.Resnet50.benchmark_1_gpu,a.B:c.d",
            "--output_gcs_url=",
            "--scratch_gcs_url=",
            "--bigquery_project_name=",
            "--bigquery_dataset_table_name=",
            "--tpu_parameters=",
            "--benchmark_class_type=",
            "--result_upload_methods=",
        ]
    )
    assert [repo.directory for repo in plan.repos] == ["models", "data"]
    assert plan.repos[0].branch == "benchmark"
    assert plan.repos[0].git_hash == HASH
    assert plan.python_path == ("models",)
    assert [(s.class_name, s.method) for s in plan.selectors] == [
        ("Resnet50", "benchmark_1_gpu"),
        ("B", "c.d"),
    ]
    assert plan.class_type is None
    assert plan.upload_methods == ()


GIVEN: list[tuple[str, str, Any]] = [
    ("--benchmark_num_trials=3", "num_trials", 3),
    ("--python_path=a,b", "python_path", ("a", "b")),
    ("--use_cached_site_packages", "use_cached_site_packages", True),
    ("--workspace=/w s", "workspace", Path("/w s")),
    ("--root_data_dir=/d", "root_data_dir", "/d"),
    ("--execution_id=id", "execution_id", "id"),
    ("--execution_label=l", "execution_label", "l"),
    ("--ml_framework_build_label=l", "ml_framework_build_label", "l"),
    ("--platform_name=p", "platform_name", "p"),
    ("--system_name=s", "system_name", "s"),
    ('--perfzero_constructor_args={"a": [1]}', "constructor_args", {"a": [1]}),
    ("--benchmark_class_type=tf_benchmark", "class_type", "tf_benchmark"),
    ("--result_upload_methods=a.b.c,d.e", "upload_methods", ("a.b.c", "d.e")),
    ("--debug", "debug", True),
    ("--timeout=2.5", "timeout_s", 2.5),
    ("--timeout=0", "timeout_s", None),
    ("--format=json", "output_format", "json"),
    ("--format=table", "output_format", "table"),
    ("--quiet", "quiet", True),
    ("--fail_on_bounds", "fail_on_bounds", True),
    ("--allow_empty", "allow_empty", True),
    ("--resume", "resume", True),
]


@pytest.mark.parametrize(("word", "field", "value"), GIVEN)
def test_each_flag_reaches_the_plan(word: str, field: str, value: Any) -> None:
    assert getattr(parse([M, word]), field) == value
    name, equals, text = word.partition("=")
    if equals:  # two words do as well as one
        assert getattr(parse([M, name, text]), field) == value


def test_downloads_and_profiler_windows_reach_the_plan() -> None:
    plan = parse(
        [
            M,
            "--data_downloads=https://h/b;x",
            "--gcs_downloads=file:///a",
            "--profiler_enabled_time=1:2,5",
        ]
    )
    assert [(d.url, d.relative_path) for d in plan.data] == [
        ("file:///a", "a"),  # the old name first, as in PerfZero
        ("https://h/b", "x"),
    ]
    assert [w.begin_s for w in plan.profiler_windows] == [1, 5]


VALUED = [name for name, default, *_ in PERFZERO if default is not False]


@pytest.mark.parametrize("name", [*VALUED, "python", "timeout", "format", "flagfile"])
def test_an_empty_value_means_unset(name: str) -> None:
    if name == "benchmark_methods":
        assert parse([M, "--benchmark_methods="]).selectors == parse([M]).selectors
        return
    for words in ([f"--{name}="], [f"--{name}", ""]):
        bare, empty = parse([M]), parse([M, *words])
        for field in vars(bare):
            if field not in ("argv", "flags"):
                assert getattr(empty, field) == getattr(bare, field), field


def test_the_defaults_are_perfzeros() -> None:
    plan = parse([M])
    assert plan.num_trials == 1
    assert plan.workspace == Path.cwd() / "workspace"
    assert plan.root_data_dir == "/data"
    assert plan.python == sys.executable
    assert plan.timeout_s == DEFAULT_TIMEOUT_S
    assert plan.flags == {
        "use_cached_site_packages": False,
        "benchmark_num_trials": 1,
        "benchmark_methods": ["pkg.mod.Class.method"],
        "workspace": "workspace",
        "root_data_dir": "/data",
        "gcloud_key_file_url": "",
        "debug": False,
        "perfzero_constructor_args": "",
    }


def test_recorded_flags_are_as_given_in_perfzeros_order_and_ours_follow() -> None:
    plan = parse(["--quiet", "--timeout=5", "--debug", "--execution_label=", M, M])
    assert list(plan.flags) == [
        "use_cached_site_packages",
        "benchmark_num_trials",
        "benchmark_methods",
        "execution_label",
        "workspace",
        "root_data_dir",
        "gcloud_key_file_url",
        "debug",
        "perfzero_constructor_args",
        "timeout",
        "quiet",
    ]
    assert plan.flags["benchmark_methods"] == ["pkg.mod.Class.method"] * 2
    assert plan.flags["execution_label"] == ""


def test_secrets_are_not_recorded() -> None:
    url = "https://user:hunter2@host/r.git"
    plan = parse([M, f"--git_repos={url}", "--data_downloads", "https://h/x?token=hunter2"])
    assert "hunter2" not in repr((plan.flags, plan.argv))
    assert plan.repos[0].url == url  # git needs it


def test_methods_may_be_given_often_and_in_comma_lists() -> None:
    plan = parse(["--benchmark_methods=a.B.c, a.B.d,", "--benchmark_methods", "a.B.filter:x.*"])
    assert [selector.text for selector in plan.selectors] == ["a.B.c", "a.B.d", "a.B.filter:x.*"]
    assert [selector.pattern for selector in plan.selectors] == [None, None, "x.*"]


@pytest.mark.parametrize(
    ("word", "field", "value"),
    [
        ("--benchmark_n=4", "num_trials", 4),
        ("--execution_l=x", "execution_label", "x"),
        ("--gcloud_key_file=", "num_trials", 1),
        ("--pyt=x", "python_path", ("x",)),
        ("--use", "use_cached_site_packages", True),
        ("--q", "quiet", True),
        ("--fail", "fail_on_bounds", True),
    ],
)
def test_prefixes_work(word: str, field: str, value: Any) -> None:
    assert getattr(parse([M, word]), field) == value


@pytest.mark.parametrize("name", [name for name, _, is_gcp, _ in PERFZERO if is_gcp])
def test_a_google_cloud_flag_with_a_value_is_refused_by_name(name: str) -> None:
    assert refused(M, f"--{name}=gs://x").startswith(f"--{name} ")


WRONG: list[tuple[list[str], str]] = [
    ([], "--benchmark_methods"),
    (["--benchmark_methods="], "--benchmark_methods"),
    (["--benchmark_methods=method"], "--benchmark_methods"),
    ([M, "--benchmark_num_trials=many"], "--benchmark_num_trials"),
    ([M, "--benchmark_num_trials=1.5"], "--benchmark_num_trials"),
    ([M, "--benchmark_num_trials=0"], "--benchmark_num_trials"),
    ([M, "--benchmark_num_trials=-1"], "--benchmark_num_trials"),
    ([M, "--benchmark_num_trials"], "--benchmark_num_trials"),
    ([M, "--timeout=soon"], "--timeout"),
    ([M, "--timeout=-1"], "--timeout"),
    ([M, "--timeout=nan"], "--timeout"),
    ([M, "--timeout=inf"], "--timeout"),
    ([M, "--format=xml"], "--format"),
    ([M, "--execution_id=a/b"], "--execution_id"),
    ([M, "--execution_id=.."], "--execution_id"),
    ([M, "--execution_id=" + "x" * 300], "--execution_id"),
    ([M, "--execution_id=a\nb/"], "--execution_id"),
    ([M, "--git_repos=ext::sh -c x"], "--git_repos"),
    ([M, "--git_repos=https://h/r;main;nothex\nx"], "--git_repos"),
    ([M, "--data_downloads=gs://b/x"], "--data_downloads"),
    ([M, "--gcs_downloads=gs://b/x"], "--gcs_downloads"),
    ([M, "--python_path=../x"], "--python_path"),
    ([M, "--profiler_enabled_time=x"], "--profiler_enabled_time"),
    ([M, "--perfzero_constructor_args={"], "--perfzero_constructor_args"),
    ([M, "--perfzero_constructor_args=[]"], "--perfzero_constructor_args"),
    ([M, "--result_upload_methods=f"], "--result_upload_methods"),
    ([M, "--debug=true"], "--debug"),
    ([M, "--p=x"], "--p"),
    ([M, "--nonsense"], "--nonsense"),
    ([M, "--batch_size=8"], "--batch_size"),
    ([M, "stray"], "stray"),
    ([M, "-x"], "-x"),
    ([M, "--python=/no/such/python"], "--python"),
    ([M, "--python=/dev/null"], "--python"),
    ([M, "--flagfile=/no/such/file"], "--flagfile"),
    ([M, "--flagfile=/"], "--flagfile"),
    ([M, "--flagfile"], "--flagfile"),
]


@pytest.mark.parametrize(
    ("words", "named"), WRONG, ids=[" ".join(words[-1:]) for words, _ in WRONG]
)
def test_what_is_wrong_is_said_in_one_line_that_names_the_flag(
    words: list[str], named: str
) -> None:
    assert named in refused(*words)


def test_an_id_of_bytes_that_are_no_text_is_a_folder_name_like_any_other() -> None:
    assert parse([M, "--execution_id=a\udcff"]).execution_id == "a\udcff"


def test_nothing_to_run_is_fine_when_that_is_said() -> None:
    assert parse(["--allow_empty"]).selectors == ()
    assert parse([M, "--allow_empty", "--benchmark_num_trials=0"]).num_trials == 0


# --- flag files --------------------------------------------------------------------------------


def test_a_flag_file_is_read_with_comments_blank_lines_and_nested_files(tmp_path: Path) -> None:
    inner = flagfile(tmp_path, "--execution_label=inner\n--quiet\n", "inner flags")
    outer = flagfile(
        tmp_path, f"# a comment\n// another\n\n--flagfile={inner}\n--benchmark_num_trials=4\n"
    )
    plan = parse([f"--flagfile={outer}", M])
    assert (plan.execution_label, plan.quiet, plan.num_trials) == ("inner", True, 4)
    assert "flagfile" not in plan.flags


def test_a_flag_file_stands_where_it_is_named(tmp_path: Path) -> None:
    path = flagfile(tmp_path, "--benchmark_num_trials=4\n")
    assert parse([M, f"--flagfile={path}", "--benchmark_num_trials=2"]).num_trials == 2
    assert parse([M, "--benchmark_num_trials=2", "--flagfile", path]).num_trials == 4


def test_flags_of_the_benchmark_may_have_a_flag_file_of_their_own(tmp_path: Path) -> None:
    path = flagfile(tmp_path, "--quiet\n")
    plan = parse([f"--flagfile={path}", M, "--", "--flagfile=theirs", "--x"])
    assert plan.quiet
    assert plan.benchmark_flags == ("--flagfile=theirs", "--x")


def test_what_is_wrong_in_a_flag_file_is_said_as_on_the_command_line(tmp_path: Path) -> None:
    path = flagfile(tmp_path, "--timeout=soon\n")
    assert "--timeout=soon" in refused(M, f"--flagfile={path}")


def test_a_flag_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "flags"
    path.write_bytes(b"\xff\xfe--quiet\n")
    assert "not UTF-8" in refused(M, f"--flagfile={path}")


def test_a_shortened_flagfile_is_refused_not_ignored(tmp_path: Path) -> None:
    path = flagfile(tmp_path, "--benchmark_num_trials=4\n")
    assert "--flagfile" in refused(M, f"--flagf={path}")


# --- the benchmark's own flags -----------------------------------------------------------------


def test_what_follows_two_dashes_is_the_benchmarks(tmp_path: Path) -> None:
    plan = parse([M, "--", "--batch_size=8", "--debug", "--", "x"])
    assert plan.benchmark_flags == ("--batch_size=8", "--debug", "--", "x")
    assert not plan.debug
    assert parse([M, "--"]).benchmark_flags == ()


# --- the interpreter ---------------------------------------------------------------------------


def test_the_interpreter_is_absolute_and_its_links_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "env" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert parse([M, "--python=env/bin/python"]).python == str(link)
    assert parse([M, "--python=env/../env/bin/python"]).python == str(link)


def test_a_name_is_looked_up_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my-python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert parse([M, "--python=my-python"]).python == str(tmp_path / "my-python")


def test_the_environment_names_the_default_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "python"))
    assert parse([M]).python == str(tmp_path / "python")
    assert parse([M, f"--python={sys.executable}"]).python == sys.executable
    monkeypatch.setenv(PYTHON_VARIABLE, "/no/such/python")
    assert PYTHON_VARIABLE in refused(M)
    monkeypatch.setenv(PYTHON_VARIABLE, "")
    assert parse([M]).python == sys.executable


def test_a_file_that_cannot_be_executed_is_called_that(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.touch(mode=0o644)
    assert "not executable" in refused(M, f"--python={path}")


def test_a_current_folder_that_has_been_removed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert "current folder" in refused(M)
    assert parse([M, f"--workspace={tmp_path}"]).workspace == tmp_path


def test_an_interpreter_in_a_closed_folder_is_refused_for_that(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may look everywhere
    try:
        assert "may not look" in refused(M, f"--python={folder / 'python'}")
    finally:
        os.seteuid(user)


# --- perfrun list ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["a.b", "c", "--python_path=p"],
        ["--python_path=p", "a.b", "c"],
        ["a.b", "--python_path=p", "c"],
    ],
)
def test_names_to_list_stand_anywhere(words: list[str]) -> None:
    plan = parse(words, command="list")
    assert plan.names == ("a.b", "c")
    assert plan.python_path == ("p",)
    assert "names" not in plan.flags


def test_a_list_needs_no_methods_but_knows_all_flags() -> None:
    plan: RunPlan = parse([], command="list")
    assert plan.names == ()
    assert "--nonsense" in refused("--nonsense", command="list")


def test_parsing_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parse([M, "--git_repos=https://h/r", "--data_downloads=https://h/d", "--workspace=w"])
    assert not list(tmp_path.iterdir())
