from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from absl import flags
from absl.testing import flagsaver
from shipped_run import ROOT

from benchmarks._support import knobs
from benchmarks._support.knob import Knob
from benchmarks._support.knobs import KNOBS, Configured, Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("batch_size", -1),
        ("batch_size", 1.5),
        ("batch_size", "8"),
        ("batch_size", True),
        ("iterations", 0),
        ("num_batches", 0),
        ("warmup", -1),
        ("seed", 2**32),
        ("forward_only", "maybe"),
        ("forward_only", 2),
        ("dtype", "float64"),
        ("dtype", 16),
        ("device", "cuda:"),
        ("device", "tpu"),
        ("model", 5),
        ("input_shape", "3x224x"),
        ("input_shape", "0x3"),
        ("input_shape", []),
        ("input_shape", [3, "224"]),
        ("input_shape", True),
        ("compile", "fast"),
    ],
)
def test_a_value_out_of_its_limits_is_refused_by_name(name: str, value: object) -> None:
    own = "iterations" if name == "num_batches" else name
    said = f"{own} is {value!r}; it must be {KNOBS[own].limits}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        Settings(**{name: value})


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("batch_size", 1, 1),
        ("warmup", 0, 0),
        ("seed", 2**32 - 1, 2**32 - 1),
        ("num_batches", 7, 7),
        ("num_warmup_batches", 0, 0),
        ("threads", 2, 2),
        ("dtype", "float", "float32"),
        ("dtype", "bfloat16", "bfloat16"),
        ("data", "synthetic", "synthetic/pinned"),
        ("data", "synthetic/gpu", "synthetic/device"),
        ("device", "cuda:3", "cuda:3"),
        ("input_shape", "3x224x224", (3, 224, 224)),
        ("input_shape", [3, 8, 8], (3, 8, 8)),
        ("input_shape", 128, (128,)),
        ("input_shape", "128", (128,)),
        ("forward_only", False, False),
        *(("forward_only", word, True) for word in ("true", "True", "t", "1", "yes", "on", 1)),
        *(("forward_only", word, False) for word in ("false", "f", "0", "no", "Off", 0)),
    ],
)
def test_each_spelling_means_one_value(name: str, given: object, value: object) -> None:
    knob = next(knob for knob in KNOBS.values() if name in knob.names)
    found = Settings(**{name: given}).value(knob.name)
    assert (found, type(found)) == (value, type(value))


def test_the_keyword_wins_over_the_flag_and_the_flag_over_the_default() -> None:
    with flagsaver.flagsaver(batch_size=4, num_warmup_batches=0):
        assert Settings(batch_size=2).value("batch_size", 1) == 2
        assert Settings().value("batch_size", 1) == 4
        assert Settings().value("warmup", 3) == 0
        assert Settings(num_warmup_batches=5).value("warmup", 3) == 5
        assert Settings(warmup=5).value("warmup", 3) == 5
        assert Settings().value("iterations", 30) == 30


def test_two_spellings_of_one_knob_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^warmup and num_warmup_batches are the same knob; give"):
        Settings(warmup=1, num_warmup_batches=1)
    with (
        flagsaver.flagsaver(iterations=4, num_batches=4),
        pytest.raises(ValueError, match=r"^iterations and num_batches are the same knob"),
    ):
        Settings()


class Narrow(Configured):
    takes = ("iterations", "batch_size")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("batchsize", "there is no knob batchsize; did you mean batch_size?"),
        ("num_batch", "there is no knob num_batch; did you mean num_batches?"),
        ("xyz", "there is no knob xyz; Narrow takes iterations, batch_size"),
        ("warmup", "Narrow does not take warmup; Narrow takes iterations, batch_size"),
        ("num_workers", "Narrow does not take num_workers; Narrow takes iterations"),
    ],
)
def test_a_keyword_that_a_class_does_not_take_is_one_line(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        Narrow(None, None, None, **{name: 1})


def test_a_flag_that_a_class_does_not_take_is_refused_and_not_ignored() -> None:
    with (
        flagsaver.flagsaver(num_warmup_batches=4),
        pytest.raises(ValueError, match=r"^Narrow does not take num_warmup_batches; Narrow takes"),
    ):
        Narrow()


def test_a_knob_that_a_class_does_not_take_has_the_default_of_its_reader() -> None:
    assert Narrow(batch_size=2).settings.value("warmup", 3) == 3
    with pytest.raises(KeyError):
        Narrow().settings.value("warm", 3)


def test_perfzeros_constructor_keeps_its_three_arguments() -> None:
    narrow = Narrow("/out", "/data", "", batch_size=2)
    assert (narrow.output_dir, narrow.root_data_dir) == ("/out", "/data")
    assert narrow.constructor_args == {"batch_size": 2}


def test_a_choice_of_the_other_framework_is_refused_with_the_own_ones() -> None:
    settings = Settings(compile="xla")
    assert settings.one_of("compile", "graph", knobs.TENSORFLOW_COMPILE) == "xla"
    said = (
        "compile is 'xla'; here it must be one of eager, default, reduce-overhead, max-autotune, "
        "torchscript"
    )
    with pytest.raises(ValueError, match=f"^{said}$"):
        settings.one_of("compile", "eager", knobs.TORCH_COMPILE)


def test_a_flag_out_of_its_limits_is_refused_by_absl() -> None:
    with pytest.raises(flags.IllegalFlagValueError, match="batch_size is 0; it must be a whole"):
        flags.FLAGS(["benchmark", "--batch_size=0"])


# What a command line says, read in a process of its own: absl's flags are global.
READ = """
import sys
from absl import flags
from benchmarks._support.knobs import Settings
flags.FLAGS(["benchmark", *sys.argv[2:]])
print(Settings().value(sys.argv[1], "none"))
"""


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["forward_only"], "none"),
        (["forward_only", "--forward_only"], "True"),
        (["forward_only", "--noforward_only"], "False"),
        (["forward_only", "--forward_only=yes"], "True"),
        (["forward_only", "--forward_only=off"], "False"),
        (["iterations", "--num_batches", "5"], "5"),
        (["data", "--data=synthetic"], "synthetic/pinned"),
        (["input_shape", "--input_shape=3x8x8"], "(3, 8, 8)"),
        (["data_dir", "--data_dir="], "none"),
    ],
)
def test_a_command_line_is_read_as_documented(words: list[str], value: str) -> None:
    argv = [sys.executable, "-c", READ, *words]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == (value, "")


def test_flags_that_nobody_parsed_leave_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    unparsed: Any = flags.FlagValues()
    flags.DEFINE_integer("batch_size", None, "examples", flag_values=unparsed)
    monkeypatch.setattr(flags, "FLAGS", unparsed)
    assert not unparsed.is_parsed()
    assert Settings().value("batch_size", 8) == 8


def test_another_modules_flag_of_the_same_name_is_read_and_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs: Any = flags.FlagValues()
    flags.DEFINE_integer("seed", 5, "theirs", flag_values=theirs)
    monkeypatch.setattr(flags, "FLAGS", theirs)
    monkeypatch.setattr(knobs, "_OWN_FLAGS", set())
    assert Settings().value("seed", 0) == 5
    assert Narrow().settings.value("seed", 0) == 0  # theirs has a default: nobody has given it


def test_without_absl_there_are_keywords_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs, "flags", None)
    assert Settings(batch_size=2).value("batch_size", 1) == 2
    assert Settings().value("batch_size", 1) == 1


def row(knob: Knob) -> str:
    spellings = ", ".join(f"`{name}`" for name in knob.names)
    return f"| {spellings} | {knob.limits} | {knob.meaning} |"


def test_the_table_in_the_documentation_is_that_of_the_declarations() -> None:
    text = (ROOT / "docs/guides/benchmarks.md").read_text(encoding="utf-8")
    section = text.partition("\n## Knobs\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [row(knob) for knob in KNOBS.values()]
