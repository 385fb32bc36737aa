"""Wrong command lines: each is answered with one line that says what is wrong and what to do."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from perfrun.benchmark import main
from perfrun.errors import UsageError
from perfrun.nightly.prune import parser as prune_parser
from perfrun.options.commands import nearest_command

SOURCE = "from perfrun import Benchmark\nclass Sorting(Benchmark):\n    def numbers(self): pass\n"
# command line after `perfrun`: exit status and the whole of what is said
TABLE = {
    "detct": (
        2,
        (
            "perfrun: 'detct' is no command; did you mean detect? (`perfrun --help` lists all "
            "commands)"
        ),
    ),
    "prun": (
        2,
        "perfrun: 'prun' is no command; did you mean run? (`perfrun --help` lists all commands)",
    ),
    "histroy": (
        2,
        (
            "perfrun: 'histroy' is no command; did you mean history? (`perfrun --help` lists all "
            "commands)"
        ),
    ),
    "sorting.py": (2, "perfrun: 'sorting.py' is no command; to run it: `perfrun run sorting.py`"),
    "sorting.Sorting.numbers": (
        2,
        (
            "perfrun: 'sorting.Sorting.numbers' is no command; to run it: `perfrun run "
            "sorting.Sorting.numbers`"
        ),
    ),
    "help comparre": (
        2,
        (
            "perfrun: 'comparre' is no command; did you mean compare? (`perfrun --help` lists all"
            " commands)"
        ),
    ),
    "run": (
        2,
        (
            "perfrun: nothing to run: name a file (`perfrun run FILE.py`), or methods with "
            "--benchmark_methods=module.Class.method (`perfrun list` shows them), or say "
            "--allow_empty"
        ),
    ),
    "run sortng.py": (
        2,
        "perfrun: sortng.py: there is no such file or folder; did you mean sorting.py?",
    ),
    "run notes.txt": (2, "perfrun: notes.txt: is not a Python file, whose name ends in .py"),
    "run 'my bench.py'": (
        2,
        (
            "perfrun: my bench.py: Python cannot import a file of this name; rename it, as to "
            "my_bench.py"
        ),
    ),
    "run json.py": (
        2,
        (
            "perfrun: json.py: Python has a module json of its own and would not import this one;"
            " rename it"
        ),
    ),
    "run sorting.py::Sort": (
        2,
        "perfrun: sorting.py::Sort: sorting has no class Sort; it has Sorting",
    ),
    "run sorting.py::Sorting.nmbers": (
        2,
        (
            "perfrun: sorting.py::Sorting.nmbers: sorting.Sorting has no method 'nmbers'; did you"
            " mean numbers?"
        ),
    ),
    "run sorting.py stray": (
        2,
        (
            "perfrun: 'stray' is not a flag, a file or module.Class.method; flags begin with -- "
            "and flags of the benchmark follow --"
        ),
    ),
    "run sorting.py --num_trials=3": (
        2,
        (
            "perfrun: unknown flag --num_trials; did you mean --benchmark_num_trials? (flags of "
            "the benchmark itself follow --)"
        ),
    ),
    "run sorting.py --trials=3": (
        2,
        (
            "perfrun: unknown flag --trials; did you mean --benchmark_num_trials? (flags of the "
            "benchmark itself follow --)"
        ),
    ),
    "run sorting.py --methods=x": (
        2,
        (
            "perfrun: unknown flag --methods; did you mean --benchmark_methods? (flags of the "
            "benchmark itself follow --)"
        ),
    ),
    "run sorting.py --output=x": (
        2,
        "perfrun: --output_gcs_url needs Google Cloud, which perfrun does not use; leave it empty",
    ),
    "run sorting.py --batch_size=3": (
        2,
        "perfrun: unknown flag --batch_size (flags of the benchmark itself follow --)",
    ),
    "run sorting.py -n 3": (
        2,
        (
            "perfrun: unknown flag -n; did you mean --benchmark_num_trials? (flags of the "
            "benchmark itself follow --)"
        ),
    ),
    "run sorting.py --benchmark_num_trials=three": (
        2,
        "perfrun: --benchmark_num_trials=three: not a whole number",
    ),
    "run sorting.py --benchmark_num_trials=0": (
        2,
        "perfrun: --benchmark_num_trials=0: must be 1 or more",
    ),
    "run sorting.py --precision=2": (
        2,
        "perfrun: --precision=2: must be more than 0 and below 100% (1% = 0.01)",
    ),
    "run sorting.py --time_budget=5m": (
        2,
        (
            "perfrun: --time_budget needs --precision; without it, --benchmark_num_trials is the "
            "number"
        ),
    ),
    "run sorting.py --format=xml": (2, "perfrun: --format=xml: must be table or json"),
    "run sorting.py --python=pythn9": (
        2,
        "perfrun: --python=pythn9: is not there; name the interpreter of the environment",
    ),
    "run sorting.py --python": (2, "perfrun: --python needs a value, as --python=FILE"),
    "run sorting.py --timeout=1h": (2, "perfrun: --timeout=1h: not a number of seconds"),
    "run sorting.py --env=X": (2, "perfrun: --env='X': must be NAME=VALUE"),
    "run sorting.py --memory=4g": (
        2,
        "perfrun: --memory is about a trial's container: name one with --image",
    ),
    "run sorting.py --profile=cprof": (
        2,
        (
            "perfrun: --profile: 'cprof' is not one of cprofile, lines, torch, tensorflow, "
            "memory, memory_lines, sampling, counters; did you mean cprofile?"
        ),
    ),
    "run sorting.py --python_path=lib": (
        2,
        (
            "perfrun: --python_path: {here}/workspace/site-packages/lib is not a folder; "
            "site-packages has: nothing"
        ),
    ),
    "run sorting.py --python_path=../lib": (
        2,
        "perfrun: --python_path: '../lib' leads out of the workspace",
    ),
    "run sorting.py --git_repos=models": (
        2,
        (
            "perfrun: --git_repos: 'models' is not a git url; write https://..., ssh://..., "
            "git@host:path, file:///... or an absolute path"
        ),
    ),
    "run sorting.py --allocator=jmalloc": (
        2,
        "perfrun: --allocator=jmalloc: must be one of default, retain, jemalloc, tcmalloc",
    ),
    "run sorting.py --store=mysql://x": (
        2,
        (
            "perfrun: --store=mysql://x: must be a file, sqlite:///FILE or "
            "postgresql+psycopg://***@HOST/DATABASE"
        ),
    ),
    "run sorting.py --data_downloads=gs://b/x": (
        2,
        (
            "perfrun: --data_downloads: 'gs://b/x': perfrun has no Google Cloud client; use "
            "http(s):// or file://"
        ),
    ),
    "run sorting.py --bigquery_project_name=x": (
        2,
        (
            "perfrun: --bigquery_project_name needs Google Cloud, which perfrun does not use; "
            "leave it empty"
        ),
    ),
    "run sorting.py --execution_id=a/b": (
        2,
        "perfrun: --execution_id='a/b': must be usable as the name of a folder",
    ),
    "run sorting.py --result_upload_methods=x": (
        2,
        "perfrun: --result_upload_methods: 'x' is not module.function",
    ),
    "run sorting.py '--perfzero_constructor_args={a:1}'": (
        2,
        (
            "perfrun: --perfzero_constructor_args: not JSON: Expecting property name enclosed in "
            "double quotes: line 1 column 2 (char 1)"
        ),
    ),
    "run sorting.py --seed=x": (2, "perfrun: --seed=x: must be a whole number, 0 or more"),
    "--benchmark_methods=numbers": (
        2,
        (
            "perfrun: --benchmark_methods: 'numbers' is not module.Class.method, "
            "module.Class:method or module.Class.filter:REGEX"
        ),
    ),
    "--benchmark_methods=sorting/Sorting.numbers": (
        2,
        (
            "perfrun: --benchmark_methods: 'sorting/Sorting.numbers' is not module.Class.method, "
            "module.Class:method or module.Class.filter:REGEX; a file is named as in `perfrun run"
            " FILE.py::Class.method`"
        ),
    ),
    "--benchmark_methods=sorting.py::Sorting.numbers": (
        2,
        (
            "perfrun: --benchmark_methods: 'sorting.py::Sorting.numbers' is not "
            "module.Class.method, module.Class:method or module.Class.filter:REGEX; a file is "
            "named as in `perfrun run FILE.py::Class.method`"
        ),
    ),
    "--benchmark_methods=sorting.Sorting.numbers": (
        2,
        (
            "perfrun: --benchmark_methods: 'sorting.Sorting.numbers': No module named 'sorting': "
            "it is in no checkout, no --python_path and not in the environment under test; "
            "`perfrun list PACKAGE` prints what there is; for the file here: `perfrun run "
            "sorting.py::Sorting.numbers`"
        ),
    ),
    "list sorting.Sortin --python_path=.": (
        1,
        "perfrun: sorting has no class Sortin; it has Sorting",
    ),
    "list no-such": (2, "perfrun list: 'no-such' is not a package, module or module.Class"),
    "compare": (
        2,
        (
            "perfrun compare: the following arguments are required: BASE, NEW (`perfrun compare "
            "--help` tells more)"
        ),
    ),
    "compare a": (
        2,
        (
            "perfrun compare: the following arguments are required: NEW (`perfrun compare --help`"
            " tells more)"
        ),
    ),
    "compare a b": (
        2,
        (
            "perfrun: 'a' is neither a folder nor a run, label, execution id, commit, date or "
            "baseline of the results in {here}/workspace"
        ),
    ),
    "compare a b --metric=x": (
        2,
        "perfrun compare: unknown flag --metric; did you mean --metrics?",
    ),
    "ab --b=--env=X=1 --max_pair=3 --benchmark_methods=sorting.Sorting.numbers": (
        2,
        (
            "perfrun: arm a: unknown flag --max_pair; did you mean --max_pairs? (flags of the "
            "benchmark itself follow --)"
        ),
    ),
    "ab --b=--env=X=1": (
        2,
        (
            "perfrun: arm a: nothing to run: name a file (`perfrun run FILE.py`), or methods with"
            " --benchmark_methods=module.Class.method (`perfrun list` shows them), or say "
            "--allow_empty"
        ),
    ),
    "versus": (2, "perfrun versus: --frameworks is needed, as --frameworks=torch,tensorflow"),
    "versus --framework=torch": (
        2,
        "perfrun versus: --frameworks is needed, as --frameworks=torch,tensorflow",
    ),
    "nightly": (
        2,
        (
            "perfrun nightly: the following arguments are required: SUITE.toml (`perfrun nightly "
            "--help` tells more)"
        ),
    ),
    "nightly suit.toml": (2, "perfrun: suit.toml: cannot be read: No such file or directory"),
    "nightly suite.toml": (
        2,
        "perfrun: suite.toml:1: unknown key 'trails'; did you mean 'trials'?",
    ),
    "prune --older=3d": (2, "perfrun prune: unknown flag --older"),
    "prune": (
        2,
        (
            "perfrun: say what to keep: --keep_nights, --keep_per_series, --older_than or "
            "--unfinished_older_than"
        ),
    ),
    "prune --keep_nights=x": (2, "perfrun: --keep_nights=x: must be a whole number, 1 or more"),
    "history": (
        2,
        (
            "perfrun history: the following arguments are required: METHOD (`perfrun history "
            "--help` tells more)"
        ),
    ),
    "detect --since=yesterday": (
        2,
        "perfrun: --since=yesterday: write a date as 2026-11-01, or 14d",
    ),
    "bisect --good=abc": (2, "perfrun bisect: --good and --bad are both needed"),
    "doctor --for=space": (
        2,
        "perfrun: --for=space: must be one of local, container, compose, gpu, nightly",
    ),
    "export --format=excel": (
        2,
        (
            "perfrun: --format=excel: must be one of csv, json, parquet, asv, bmf, "
            "google-benchmark, pyperf, pytest-benchmark"
        ),
    ),
    "export": (
        2,
        (
            "perfrun export: --format is missing: say --csv=FILE, --json=FILE, --parquet=FILE, or "
            "--format with one of csv, json, parquet, asv, bmf, google-benchmark, pyperf, "
            "pytest-benchmark"
        ),
    ),
    "import --format=asv": (
        2,
        (
            "perfrun import: the following arguments are required: FILE (`perfrun import --help` "
            "tells more)"
        ),
    ),
    "completion": (
        2,
        (
            "perfrun completion: the following arguments are required: bash|zsh|fish (`perfrun "
            "completion --help` tells more)"
        ),
    ),
    "completion tcsh": (2, "perfrun completion: SHELL=tcsh: must be one of bash, zsh, fish"),
    "init --python=nopython": (2, "perfrun init: --python=nopython: is no program"),
    "selftest --precision=1%": (
        2,
        (
            "perfrun selftest: --precision: no such flag here; there are --python, --image, "
            "--image_python, --trial_network, --cpuset, --memory, --shm_size, --gpus, "
            "--pids_limit, --workspace, --timeout, --debug, --format"
        ),
    ),
    "dlbs": (2, "perfrun: perfrun.dlbs: --model and --batch_size are needed"),
    "index": (
        2,
        (
            "perfrun: --workspace={here}/workspace: is not there; name the workspace, or an "
            "index with --store"
        ),
    ),
    "ab --b=--env=X=1 sorting.py::Sorting.nmbers": (
        2,
        (
            "perfrun: sorting.py::Sorting.nmbers: sorting.Sorting has no method 'nmbers'; did you"
            " mean numbers?"
        ),
    ),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sorting.py").write_text(SOURCE)
    (tmp_path / "suite.toml").write_text("trails = 3\n[[methods]]\nname='a.B.c'\n")
    for name in ("my bench.py", "json.py", "notes.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFRUN_PYTHON", raising=False)
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.mark.parametrize("words", TABLE)
def test_a_wrong_command_line_is_answered_with_one_helpful_line(
    words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = TABLE[words]
    assert main(shlex.split(words)) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == said.replace("{here}", str(here)) + "\n"


def test_nothing_that_removes_is_suggested() -> None:
    assert [nearest_command(word) for word in ("prun", "prunes", "prue")] == ["run", None, None]
    for flag in ("--older", "--keep_night", "--keep_per_serie", "--unfinished_older_tham"):
        with pytest.raises(UsageError, match=rf"^perfrun prune: unknown flag {flag}$"):
            prune_parser().parse_args([flag, "3"])
