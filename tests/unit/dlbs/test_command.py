"""DLBS' command line and its log lines: the flags of its page, and its parser's rule."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trial_documents import perfrun_summary

from perfrun.dlbs.command import MODELS, parse_experiment, parser, result_lines
from perfrun.errors import UsageError

# DLBS' rule for a line of a log: blanks, the key between double underscores, blanks, =, JSON.
LOG_LINE = re.compile(r"[ \t]*__(?P<key>.+?)__[ \t]*=(?P<value>.+)")


def parsed(text: str) -> dict[str, Any]:
    """Return what DLBS' log parser reads from a log: the last value of each key."""
    found = {}
    for line in text.splitlines():
        match = LOG_LINE.match(line)
        if match:
            found[match["key"]] = json.loads(match["value"])
    return found


def benchmark_flags(*words: str) -> list[str]:
    plan = parse_experiment(["--model=resnet50", "--batch_size=4", *words]).plan
    return list(plan.benchmark_flags)


def test_the_command_line_that_dlbs_launchers_make_is_taken_as_it_is() -> None:
    words = (
        "--model=resnet50 --forward_only=false --batch_size=16 --num_batches=100 "
        "--num_warmup_batches=1 --num_gpus=1 --device=cpu --data_backend=caffe_lmdb "
        "--data_shuffle=false --num_loader_threads=4 --dtype=float --cudnn_benchmark=true "
        "--cudnn_fastest=false"
    )
    for style in (words.split(), words.replace("=", " ").split()):
        experiment = parse_experiment(style)
        assert experiment.plan.benchmark_flags == (
            "--model=dlbs:resnet50",
            "--forward_only=false",
            "--weight_decay=0.0001",
            "--batch_size=16",
            "--num_batches=100",
            "--num_warmup_batches=1",
            "--device=cpu",
            "--dtype=float",
        )
        [selector] = experiment.plan.selectors
        assert selector.text == "benchmarks.torch.model.Model.run"


def test_every_flag_of_dlbs_is_known() -> None:
    known = {option for action in parser()._actions for option in action.option_strings}
    documented = (
        "model forward_only batch_size num_batches num_warmup_batches num_gpus device dtype "
        "data_dir cudnn_benchmark cudnn_fastest data_shuffle num_loader_threads data_backend "
        "data data_loader_only dist_backend local_rank"
    )
    assert {f"--{name}" for name in documented.split()} <= known


@pytest.mark.parametrize("text", ["true", "t", "1", "on", "yes", "TRUE"])
def test_switches_take_the_words_for_true(text: str) -> None:
    assert "--forward_only=true" in benchmark_flags(f"--forward_only={text}")


def test_a_bare_switch_is_true() -> None:
    assert "--forward_only=true" in benchmark_flags("--forward_only", "--cudnn_benchmark")
    assert "--cudnn_fastest=true" in benchmark_flags("--cudnn_fastest")


def test_a_data_set_brings_its_flags_along() -> None:
    given = benchmark_flags(
        "--data_dir=/data/imagenet", "--data_backend", "image_folder", "--data_shuffle"
    )
    assert given[-4:] == [
        "--data_dir=/data/imagenet",
        "--data_backend=image_folder",
        "--num_loader_threads=4",
        "--data_shuffle=true",
    ]


def test_devices_and_their_settings_are_passed_on() -> None:
    assert {"--device=gpu", "--dtype=float16", "--cudnn_benchmark=true"} <= set(
        benchmark_flags("--device=gpu", "--dtype=float16")
    )


def test_several_devices_train_by_weak_scaling_as_in_dlbs() -> None:
    words = ["--device=gpu", "--num_gpus", "2", "--dist_backend=nccl", "--dtype=float16"]
    plan = parse_experiment(["--model=resnet50", "--batch_size=4", *words]).plan
    assert plan.selectors[0].text == "benchmarks.torch.scaling.Scaling.weak"
    assert plan.benchmark_flags == (
        "--model=dlbs:resnet50",
        "--weight_decay=0.0001",
        "--batch_size=4",
        "--num_batches=100",
        "--num_warmup_batches=1",
        "--device=gpu",
        "--dtype=float16",
        "--dist_backend=nccl",
        "--num_gpus=2",
    )


def test_flags_of_a_run_and_further_flags_go_where_they_belong(tmp_path: Path) -> None:
    experiment = parse_experiment(
        ["--model=vgg16", f"--workspace={tmp_path}", "--batch_size=1", "--", "--seed=3"]
    )
    assert experiment.plan.workspace == tmp_path
    assert experiment.plan.benchmark_flags[-1] == "--seed=3"
    assert experiment.title == "VGG16"


def test_a_model_that_dlbs_did_not_have_goes_by_its_own_name() -> None:
    experiment = parse_experiment(["--model=timm:convnext_tiny", "--batch_size=1"])
    assert "--model=timm:convnext_tiny" in experiment.plan.benchmark_flags
    assert experiment.title == "timm:convnext_tiny"
    assert len(MODELS) == 20


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch_size=1"], "--model and --batch_size"),
        (["--model=vgg16"], "--model and --batch_size"),
        (["--model=vgg16", "--batch_size=0"], "--batch_size=0"),
        (["--model=vgg16", "--batch_size=1", "--num_batches=x"], "--num_batches=x"),
        (["--model=vgg16", "--batch_size=1", "--forward_only=maybe"], "--forward_only=maybe"),
        (["--model=vgg16", "--batch_size=1", "--device=tpu"], "--device=tpu"),
        (["--model=vgg16", "--batch_size=1", "--local_rank=1"], "starts the processes itself"),
        (["--model=vgg16", "--batch_size=1", "--data_loader_only"], "needs --data_dir"),
        (["--model=vgg16", "--batch_size=1", "--modle=x"], "--modle"),
        (
            [
                "--model=vgg16",
                "--batch_size=1",
                "--num_gpus=2",
                "--data_dir=/d",
                "--data_loader_only",
            ],
            "for one device",
        ),
        (["--model=vgg16", "--batch_size=1", "--benchmark_methods=m.C.x"], "method is fixed"),
    ],
)
def test_what_cannot_be_meant_is_one_line(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_experiment(words)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def document(**own: Any) -> dict[str, Any]:
    made = perfrun_summary(own={"usage": {"elapsed_s": 2.5}, "phases": {}, **own})
    made["ml_framework_info"] = {"name": "torch", "version": "2.13.0+cpu"}
    return made


def lines(times_s: list[float], made: dict[str, Any], *words: str) -> dict[str, Any]:
    experiment = parse_experiment(["--model=alexnet_owt", "--batch_size=4", *words])
    return parsed("\n".join(["[1/1] something else", *result_lines(experiment, made, times_s)]))


def test_dlbs_parser_finds_the_figures_in_milliseconds() -> None:
    found = lines([8.0, 12.0], document())
    assert found["results.time"] == 10_000.0
    assert found["results.time_std"] == 2000.0
    assert found["results.throughput"] == 0.4, "DLBS cut this to 0, its mark of a failure"
    assert found["results.time_data"] == [8000.0, 12_000.0]
    assert found["results.status"] == found["exp.status"] == "ok"
    assert found["exp.model_title"] == "AlexNetOWT"
    assert (found["exp.framework_title"], found["exp.framework_ver"]) == ("PyTorch", "2.13.0+cpu")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d:\d\d:\d\d:\d\d:\d{3}", found["results.start_time"])
    assert found["results.end_time"] > found["results.start_time"]


def test_throughput_is_that_of_all_devices() -> None:
    made = document()
    made["benchmark_result"]["extras"] = [{"name": "global_batch_size", "value": 8.0}]
    found = lines([0.5], made, "--num_gpus=2")
    assert (found["exp.replica_batch"], found["exp.effective_batch"]) == (4, 8)
    assert found["results.throughput"] == 16.0
    del made["benchmark_result"]["extras"][:]
    assert lines([0.5], made, "--num_gpus=3")["results.throughput"] == 24.0


def test_the_rates_of_devices_that_do_not_wait_for_each_other_add_up() -> None:
    experiment = parse_experiment(
        ["--model=alexnet_owt", "--batch_size=4", "--num_gpus=2", "--forward_only"]
    )
    made = result_lines(experiment, document(), [0.5, 0.5], means_s=[0.25, 0.5])
    found = parsed("\n".join(made))
    assert (found["results.time"], found["results.throughput"]) == (500.0, 4 / 0.25 + 4 / 0.5)


def test_the_log_names_the_host_and_its_use_over_time() -> None:
    experiment = parse_experiment(["--model=alexnet_owt", "--batch_size=4"])
    made = document()
    use = {"time": [0.0, 60.0], "mem_res": [1.5, 2.5]}
    found = parsed("\n".join(result_lines(experiment, made, [1.0], use=use)))
    assert found["exp.node_id"] == made["system_info"]["hostname"]
    assert found["results.use.mem_res"] == [1.5, 2.5]
    first, second = found["results.use.time"]
    assert first == found["results.start_time"] < second


def test_several_devices_infer_and_share_a_data_set() -> None:
    words = ["--num_gpus=2", "--forward_only", "--data_dir=/data", "--data_backend=image_folder"]
    experiment = parse_experiment(["--model=resnet50", "--batch_size=4", *words])
    assert experiment.plan.selectors[0].text == "benchmarks.torch.scaling.Scaling.weak"
    assert {"--forward_only=true", "--data_dir=/data", "--data_backend=image_folder"} <= set(
        experiment.plan.benchmark_flags
    )


def test_a_trial_without_single_times_still_has_its_mean() -> None:
    found = lines([], document())
    assert (found["results.time"], found["results.throughput"]) == (1500.0, 4 / 1.5)
    assert "results.time_data" not in found


def test_a_failure_has_no_figures_and_says_why() -> None:
    outcome = {"status": "failed", "reason": "ValueError: no such model"}
    found = lines([1.0], document(outcome=outcome, usage={"elapsed_s": None}))
    assert found["results.status"] == found["exp.status"] == "failure"
    assert found["exp.status_msg"] == "ValueError: no such model"
    assert not {"results.time", "results.throughput", "results.end_time"} & set(found)


def test_the_phase_is_what_was_asked_for() -> None:
    experiment = parse_experiment(["--model=vgg11", "--batch_size=1", "--forward_only"])
    assert parsed("\n".join(result_lines(experiment, document(), [1.0])))["exp.phase"] == (
        "inference"
    )
    trained = replace(experiment, forward_only=False)
    assert parsed("\n".join(result_lines(trained, document(), [1.0])))["exp.phase"] == "training"
