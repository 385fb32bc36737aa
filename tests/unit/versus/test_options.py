"""The command line of `perfrun versus`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.versus.options import (
    UNEQUAL,
    Case,
    Combine,
    Prices,
    VersusPlan,
    parse_arms,
    parse_prices,
    parse_versus,
    usual_python,
)

PYTHON = f"--python={sys.executable}"


def asked(*words: str) -> VersusPlan:
    found = parse_versus(words)
    assert isinstance(found, VersusPlan)
    return found


def test_each_framework_runs_its_own_class_at_each_batch_size(tmp_path: Path) -> None:
    found = asked(
        "--frameworks=torch,tensorflow",
        "--model=efficientnet_b0",
        "--batch_sizes=1,8",
        "--phase=both",
        f"--workspace={tmp_path}",
        PYTHON,
        "--platform_name=laptop",
        "--",
        "--dtype=bfloat16",
    )
    assert found.cases == tuple(
        Case(phase=phase, batch_size=size) for phase in ("inference", "training") for size in (1, 8)
    )
    assert list(found.plans) == [
        (name, size) for name in ("torch", "tensorflow") for size in (1, 8)
    ]
    plan = found.plans["tensorflow", 8]
    assert [selector.text for selector in plan.selectors] == [
        "benchmarks.tensorflow.model.Model.inference",
        "benchmarks.tensorflow.model.Model.training",
    ]
    assert plan.benchmark_flags == ("--model=efficientnet_b0", "--batch_size=8", "--dtype=bfloat16")
    assert (plan.workspace, plan.execution_label) == (
        tmp_path / "versus" / "tensorflow",
        "tensorflow",
    )
    assert (found.workspace, found.platform_name) == (tmp_path, "laptop")
    assert (found.rounds, found.min_effect) == (30, 0.02)


@pytest.mark.parametrize(
    ("item", "label", "method"),
    [
        ("torch", "torch", "benchmarks.torch.model.Model.inference"),
        ("pytorch", "pytorch", "benchmarks.torch.model.Model.inference"),
        (
            "torch:compiled",
            "torch:compiled",
            "benchmarks.torch.model.Model.inference_compiled",
        ),
        ("new=torch:eager", "new", "benchmarks.torch.model.Model.inference_eager"),
        ("tf:xla", "tf:xla", "benchmarks.tensorflow.model.Model.inference_compiled"),
        ("tensorflow:graph", "tensorflow:graph", "benchmarks.tensorflow.model.Model.inference"),
        ("jax", "jax", "benchmarks.jax.model.Model.inference"),
        ("jax:xla", "jax:xla", "benchmarks.jax.model.Model.inference_compiled"),
        ("keras", "keras", "benchmarks.tensorflow.model.Model.inference"),  # as it always was
        ("keras:jax", "keras:jax", "benchmarks.keras.model.Model.inference"),
        ("k=keras:torch:eager", "k", "benchmarks.keras.model.Model.inference_eager"),
        ("mine=my.bench.Net:int8", "mine", "my.bench.Net.inference_int8"),
    ],
)
def test_an_arm_has_a_name_a_framework_and_a_mode(item: str, label: str, method: str) -> None:
    (one,) = parse_arms(item)
    assert (one.label, one.method("inference")) == (label, method)


def test_environments_go_by_label_then_framework_then_to_all(tmp_path: Path) -> None:
    interpreters = {}
    for name in ("old", "torch", "rest"):
        interpreters[name] = tmp_path / f"{name}=1" / "python"
        interpreters[name].parent.mkdir()
        interpreters[name].symlink_to(sys.executable)
    found = asked(
        "--frameworks=old=torch,torch,torch:compiled,tensorflow",
        f"--workspace={tmp_path}",
        f"--python=old={interpreters['old']}",
        f"--python=torch={interpreters['torch']}",
        f"--python={interpreters['rest']}",
    )
    used = {label: Path(plan.python).parent.name for (label, _), plan in found.plans.items()}
    assert used == {
        "old": "old=1",
        "torch": "torch=1",
        "torch:compiled": "torch=1",
        "tensorflow": "rest=1",
    }


def test_without_one_named_the_variable_says_the_interpreter_then_the_environments_of_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert usual_python("torch", {}) is None
    made = tmp_path / ".envs" / "torch" / "bin" / "python"
    made.parent.mkdir(parents=True)
    made.symlink_to(sys.executable)
    assert usual_python("torch", {}) == ".envs/torch/bin/python"
    assert usual_python("torch", {"PERFRUN_PYTHON_TORCH": "/x/python"}) == "/x/python"
    assert usual_python("mine", {"PERFRUN_PYTHON_MINE": "/x/python"}) is None


def test_the_backend_of_keras_is_a_variable_of_its_runs_and_brings_its_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("jax", "torch"):
        made = tmp_path / ".envs" / name / "bin" / "python"
        made.parent.mkdir(parents=True)
        made.symlink_to(sys.executable)
    found = asked("--frameworks=jax,keras:jax,keras:torch", f"--workspace={tmp_path}")
    used = {label: (plan.env, plan.python) for (label, _), plan in found.plans.items()}
    assert [dict(env) for env, _ in used.values()] == [
        *({}, {"KERAS_BACKEND": "jax"}, {"KERAS_BACKEND": "torch"}),
    ]
    places = [Path(python).parts[-3] for _, python in used.values()]
    assert places == ["jax", "jax", "torch"]
    assert usual_python("keras", {"PERFRUN_PYTHON_JAX": "/j"}, "jax") == "/j"
    both = {"PERFRUN_PYTHON_JAX": "/j", "PERFRUN_PYTHON_KERAS": "/k"}
    assert usual_python("keras", both, "jax") == "/k"


def test_what_may_be_unequal_is_named(tmp_path: Path) -> None:
    words = ("--frameworks=torch", PYTHON, f"--workspace={tmp_path}")
    assert asked(*words).allow_unequal == frozenset()
    assert asked(*words, "--allow_unequal=layout,tf32").allow_unequal == {"layout", "tf32"}
    assert asked(*words, "--allow_unequal=all").allow_unequal == set(UNEQUAL)


def test_flags_of_one_arm_are_for_it_alone_and_come_last(tmp_path: Path) -> None:
    found = asked(
        "--frameworks=torch,tensorflow",
        f"--workspace={tmp_path}",
        PYTHON,
        "--flags=torch='--env=A=b c' -- --compile=max-autotune",
        "--env=X=1",
        "--",
        "--warmup=2",
    )
    torch, tensorflow = found.plans["torch", 1], found.plans["tensorflow", 1]
    assert torch.env == (("X", "1"), ("A", "b c"))
    assert torch.benchmark_flags == ("--batch_size=1", "--warmup=2", "--compile=max-autotune")
    assert (tensorflow.env, tensorflow.benchmark_flags) == (
        (("X", "1"),),
        ("--batch_size=1", "--warmup=2"),
    )


def test_an_image_takes_the_place_of_an_interpreter(tmp_path: Path) -> None:
    found = asked(
        "--frameworks=torch,tensorflow",
        f"--workspace={tmp_path}",
        "--image=torch=perfrun/torch:1",
        f"--python=tensorflow={sys.executable}",
    )
    container = found.plans["torch", 1].container
    assert container is not None
    assert container.image == "perfrun/torch:1"
    assert found.plans["tensorflow", 1].container is None


def test_one_arm_alone_runs_until_there_is_an_interval(tmp_path: Path) -> None:
    assert asked("--frameworks=torch", PYTHON, f"--workspace={tmp_path}").rounds == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--frameworks=torch,tensorflow"),
        (["--frameworks=,"], "names none"),
        (["--frameworks=caffe"], "'caffe' is none of torch, tensorflow"),
        (["--frameworks=torch:xla"], "the mode is one of bfloat16, compiled, eager, float16"),
        (["--frameworks=torch,torch"], "cannot be told apart"),
        (["--frameworks=torch:eager,torch_eager=torch"], "cannot be told apart"),
        (["--frameworks=../x=torch"], "begins with a letter"),
        (["--frameworks=my.bench.Net"], "give the class a name"),
        (["--frameworks=x=my..Net"], "not package.module.Class"),
        (["--frameworks=keras:mxnet"], "the mode is one of bfloat16, compiled, eager"),
        (["--frameworks=torch", "--allow_unequal=batch"], "'batch' is none of dtype, tf32, layout"),
        (["--frameworks=torch", "--batch_sizes=0"], "--batch_sizes=0"),
        (["--frameworks=torch", "--batch_sizes=1,,2"], "write whole numbers"),
        (["--frameworks=torch", "--batch_sizes=8,8"], "names 8 twice"),
        (["--frameworks=torch", "--batch_sizes=1e3"], "--batch_sizes=1e3"),
        (["--frameworks=torch", "--phase=test"], "--phase=test"),
        (["--frameworks=torch", "--rounds=0"], "--rounds=0"),
        (["--frameworks=torch", "--format=xml"], "--format=xml"),
        (["--frameworks=torch", "--min_effect=2"], "--min_effect=2"),
        (["--frameworks=torch", "--price_per_hour=free"], "--price_per_hour=free"),
        (["--frameworks=torch", "--price_per_hour=tensorflow=2"], "is none of torch"),
        (["--frameworks=torch", "--python=jax=/x/python"], "'jax' is none of torch"),
        (["--frameworks=torch", "--python=torch=/nowhere/python"], "torch: --python=/nowhere"),
        (["--frameworks=torch", "--python=torch="], "names nothing"),
        (["--frameworks=torch", PYTHON, "--image=x"], "both --python and --image"),
        (["--frameworks=torch", "--flags=torch='"], "no closing quotation"),
        (["--frameworks=torch", "--no_such=1"], "unknown flag --no_such"),
        (["--frameworks=torch", "--precision=1%"], "--rounds and --time_budget"),
        (["--frameworks=torch", "--benchmark_methods=a.B.c"], "the methods come from --frameworks"),
        (["--frameworks=torch", "--execution_id=x"], "--execution_id"),
        (
            ["--frameworks=torch,tf", "--flags=torch=--workspace=x"],
            "--workspace: must be the same",
        ),
        (["--frameworks=torch", "--", "--batch_size=4"], "is set with --batch_sizes"),
        (["--frameworks=torch", "--flags=torch=-- --batch_size=4"], "is set with --batch_sizes"),
        (
            ["--frameworks=torch", '--perfzero_constructor_args={"batch_size": 4}'],
            "torch: batch_size: is set with --batch_sizes",
        ),
        (["--frameworks=torch", "--model=x", "--", "--model", "y"], "is set with --model"),
        (["--combine", "x", "--frameworks=torch"], "does not take --frameworks"),
        (["--combine", "x", "--timeout=3"], "does not take --timeout=3"),
    ],
)
def test_what_cannot_be_meant_is_one_line_before_anything_runs(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFRUN_PYTHON_TORCH", raising=False)
    with pytest.raises(UsageError) as error:
        parse_versus(words)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_combining_takes_prices_and_a_format() -> None:
    found = parse_versus(["--combine", "a", "b", "--price_per_hour=x=2", "--format=markdown"])
    assert found == Combine(
        sources=(Path("a"), Path("b")),
        prices=Prices(by_name={"x": 2.0}),
        output_format="markdown",
    )


def test_prices_go_by_label_framework_platform_and_for_all() -> None:
    prices = parse_prices(["torch=1,big machine=4", "3"])
    assert prices.of("torch", "torch", "big machine") == 1
    assert prices.of("old", "torch", None) == 1
    assert prices.of("tensorflow", "tensorflow", "big machine") == 4
    assert prices.of("tensorflow", "tensorflow", "small one") == 3
    assert parse_prices(None) == Prices()


@pytest.mark.parametrize("text", ["-1", "0", "nan", "inf", "=2", "a=1,a=2", "1,2", "$3", "1e999"])
def test_a_price_is_a_positive_number(text: str) -> None:
    with pytest.raises(UsageError, match="--price_per_hour"):
        parse_prices([text])
