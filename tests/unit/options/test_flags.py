"""The table of flags: PerfZero's order and defaults, prefixes, and what a typing error says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfrun.benchmark import main
from perfrun.errors import UsageError
from perfrun.options.flags import PERFZERO, complete_prefix, parser, unknown_flag

GOLDEN = Path(__file__).parents[2] / "data" / "perfzero"
NAMES = [name for name, *_ in PERFZERO]
GCP = {
    "output_gcs_url",
    "scratch_gcs_url",
    "bigquery_project_name",
    "bigquery_dataset_table_name",
    "gcloud_key_file_url",
    "tpu_parameters",
}
OWN = (
    "profile",
    "profile_scope",
    "python",
    "allocator",
    "timeout",
    "format",
    "quiet",
    "verbose",
    "metrics",
    "print_perfzero_summary",
    "fail_on_bounds",
    "allow_empty",
    "resume",
    "baseline",
    "env",
    "store",
    "flagfile",
    "precision",
    "max_trials",
    "time_budget",
    "max_reruns",
    "seed",
    "image",
    "image_python",
    "trial_network",
    "cpuset",
    "memory",
    "shm_size",
    "gpus",
    "pids_limit",
)


def test_the_google_cloud_flags_are_perfzeros_six() -> None:
    assert {name for name, _, is_gcp, _ in PERFZERO if is_gcp} == GCP


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.name)
def test_the_flags_stand_in_perfzeros_order(path: Path) -> None:
    flags = list(json.loads(path.read_text())["benchmark_info"]["flags"])
    assert [name for name in NAMES if name in flags] == flags


def test_perfrun_adds_its_own_flags_and_no_others() -> None:
    known = {
        option.removeprefix("--")
        for action in parser()._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    assert known == {*NAMES, *OWN, "help", "version"}


@pytest.mark.parametrize("command", ["run", "list", "doctor"])
def test_the_help_shows_every_flag_that_can_be_used(command: str) -> None:
    text = parser(command).format_help()
    for name in (*NAMES, *OWN):
        assert (f"--{name}" in text) is (name not in GCP)
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN])
def test_every_prefix_that_is_perfzeros_alone_is_completed(name: str) -> None:
    for length in range(1, len(name) + 1):
        prefix = name[:length]
        fits = [other for other in NAMES if other.startswith(prefix)]
        if prefix in (*OWN, "version", "help"):
            continue  # a flag of perfrun's own that is written out
        expected = f"--{fits[0]}" if len(fits) == 1 else f"--{prefix}"
        assert complete_prefix(f"--{prefix}") == expected
        assert complete_prefix(f"--{prefix}=a=--b") == f"{expected}=a=--b"


@pytest.mark.parametrize(
    ("word", "full"),
    [
        ("--gcloud_key_file=", "--gcloud_key_file_url="),  # ml-testing-accelerators writes this
        ("--benchmark_m=a.B.c", "--benchmark_methods=a.B.c"),
        ("--execution_l=x", "--execution_label=x"),
        ("--t=x", "--tpu_parameters=x"),  # --timeout does not make it ambiguous
        ("--re=x", "--result_upload_methods=x"),  # nor does --resume
        ("--pyt=x", "--python_path=x"),  # nor does --python
        ("--use", "--use_cached_site_packages"),
        ("--python=x", "--python=x"),
        ("--resume", "--resume"),
        ("--p=x", "--p=x"),
        ("--", "--"),
        ("--=", "--="),
        ("-p=x", "-p=x"),
        ("value", "value"),
        ("", ""),
    ],
)
def test_prefixes_seen_in_the_wild(word: str, full: str) -> None:
    assert complete_prefix(word) == full


@pytest.mark.parametrize("own", OWN)
def test_own_flags_written_out_are_never_taken_for_perfzeros(own: str) -> None:
    assert complete_prefix(f"--{own}") == f"--{own}"
    assert complete_prefix(f"--{own}=1") == f"--{own}=1"


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("--benchmark_metods=x", "did you mean --benchmark_methods?"),
        ("--batch_size=8", "flags of the benchmark itself follow --"),
        ("--phase=inference", "unknown flag --phase (flags of the benchmark itself follow --)"),
        ("--benchmrk-num_trials=2", "did you mean --benchmark_num_trials?"),
        ("stray", "'stray' is not a flag"),
    ],
)
def test_an_unknown_flag_is_answered_with_the_nearest(word: str, says: str) -> None:
    text = unknown_flag(word, parser())
    assert says in text
    assert "\n" not in text
    assert "=x" not in text  # a value may be a secret


def test_errors_of_the_parser_are_usage_errors_of_one_line() -> None:
    with pytest.raises(UsageError, match="--workspace") as caught:
        parser().parse_args(["--workspace"])
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_two_parses_share_no_list() -> None:
    made = parser()
    assert made.parse_args(["--benchmark_methods=a"]).benchmark_methods == ["a"]
    assert made.parse_args(["--benchmark_methods=b"]).benchmark_methods == ["b"]
    assert made.parse_args([]).benchmark_methods == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["selftets"], "perfrun: 'selftets' is no command; did you mean selftest"),
        (
            ["whatever", "--format=json"],
            "perfrun: 'whatever' is no command (`perfrun --help` lists all commands)",
        ),
        (["help", "detct"], "perfrun: 'detct' is no command; did you mean detect?"),
        (["compare"], "perfrun compare: the following arguments are required"),
    ],
)
def test_a_wrong_command_is_one_line_too(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    [line] = shown.err.splitlines()
    assert says in line
