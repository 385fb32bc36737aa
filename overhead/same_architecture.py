"""Hold parameters, arithmetic and shapes of plain names against each other, over frameworks.

    python -m overhead.same_architecture --python=torch=/envs/torch/bin/python \\
        --python=tensorflow=/envs/tensorflow/bin/python

prints a row for each model, beside the multiply-adds that torchvision publishes, and the
differences. The exit status is 1 when there is one that is not in `KNOWN`. Models can be named,
also with a shape (`resnet18=3x64x64`). No model is run; each framework has one process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COMPARED = (
    *("trainable_parameters", "inference_flops", "training_flops"),
    *("input_shape", "output_shapes"),
)
# Differences that are meant: model, framework, fact, and how much more the first framework has.
KNOWN = {
    # Keras has no scale in its batch normalisation: one number for each of 17,216 channels.
    ("inception_v3", "tensorflow", "trainable_parameters"): 17_216,
}
# torchvision rounds to a million, and counts Swin v2's position biases otherwise.
CLOSE, ROUNDED = 0.005, 1e6

Facts = Mapping[str, Any]  # one model's line of JSON


def described(framework: str, python: str, models: Sequence[str]) -> dict[str, Facts]:
    """Return the facts of models by name, from one process of the framework's interpreter."""
    lines = _output(python, f"benchmarks.{framework}.architecture", *models)
    return {facts["model"]: facts for facts in map(json.loads, lines)}


def plain_names(framework: str, python: str) -> list[str]:
    """Return the plain names that a framework's catalogue has."""
    return _output(python, f"benchmarks.{framework}.catalogue", "plain")


def _output(python: str, module: str, *arguments: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [python, "-m", module, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode not in (0, 1) or not done.stdout:  # 1: a model has an error, in its line
        raise RuntimeError(f"{module} gave no answer:\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()


def differences(found: Mapping[str, Mapping[str, Facts]]) -> Iterator[str]:
    """Yield a line for each fact in which a framework differs from the first that has the model."""
    models = dict.fromkeys(model for facts in found.values() for model in facts)
    for model in models:
        having = [name for name in found if model in found[name]]
        first, *others = having
        for framework in having:
            if "error" in found[framework][model]:
                yield f"{model}: {framework}: {found[framework][model]['error']}"
        for framework in others:
            for fact in COMPARED:
                ours, theirs = (found[each][model].get(fact) for each in (first, framework))
                if (model, framework, fact) in KNOWN and ours is not None and theirs is not None:
                    theirs += KNOWN[model, framework, fact]
                if ours != theirs:
                    yield f"{model}: {fact}: {first} {ours}, {framework} {theirs}"


def far_from_published(found: Mapping[str, Mapping[str, Facts]]) -> Iterator[str]:
    """Yield a line for each model whose multiply-adds are not those that its library publishes."""
    for framework, models in found.items():
        for model, facts in models.items():
            published, flops = facts.get("published_macs"), facts.get("inference_flops")
            if not published or not flops:
                continue
            if abs(flops / 2 - published) > max(CLOSE * published, ROUNDED):
                yield f"{model}: {framework} has {flops / 2:.4g} multiply-adds, not {published:.4g}"


def table(found: Mapping[str, Mapping[str, Facts]]) -> Iterator[str]:
    """Yield the rows of a table in Markdown: 10^9 multiply-adds, forward and in training."""
    yield f"| model | trainable parameters | published | {' | '.join(found)} |"
    yield f"|---|---|---|{'---|' * len(found)}"
    for model in dict.fromkeys(model for facts in found.values() for model in facts):
        every = [facts.get(model, {}) for facts in found.values()]
        known = next((facts for facts in every if "inference_flops" in facts), {})
        published = next((f["published_macs"] for f in every if f.get("published_macs")), None)
        cells = [
            model,
            f"{known.get('trainable_parameters', 0):,}",
            f"{published / 1e9:.3f}" if published else "",
            *(_counts(facts) for facts in every),
        ]
        yield f"| {' | '.join(cells)} |"


def _counts(facts: Facts) -> str:
    if "inference_flops" not in facts:
        return str(facts.get("error", ""))
    counts = (facts[f"{kind}_flops"] / 2e9 for kind in ("inference", "training"))
    return " / ".join(f"{count:.4f}" for count in counts)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m overhead.same_architecture")
    parser.add_argument("--python", action="append", required=True, metavar="FRAMEWORK=PATH")
    parser.add_argument("model", nargs="*", help="NAME or NAME=SHAPE; none: all plain names")
    options = parser.parse_args(argv)
    found = {}
    for pair in options.python:
        framework, _, python = pair.partition("=")
        wanted = options.model or plain_names(framework, python)
        found[framework] = described(framework, python, wanted)
    wrong = [*differences(found), *far_from_published(found)]
    sys.stdout.write("\n".join([*table(found), "", *wrong]) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
