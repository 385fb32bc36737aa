"""Time the steps of a Flax model in a loop written by hand; print JSON.

    python overhead/loops/jax_loop.py --model=resnet50 --phase=training --batch_size=2

No library has these networks in Flax, so they come from this repository; the step, its compilation
and its clock are this file's. JAX takes its threads from the CPUs that the process may use.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

UNNORMALISED = ("vgg", "deep_mnist", "acoustic_model", "sensor_net")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--phase", choices=("inference", "training"), default="inference")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--size", type=int, help="side of an image, or tokens; none: the model's")
    options = parser.parse_args(argv)
    spec, shape, model = built(options.model, options.size)
    training = options.phase == "training"
    if training:
        model.train()
    else:
        model.eval()
    graph, *state = nnx.split(model, nnx.Param, ...)
    leaves, places = jax.tree.flatten(state)
    del model, state
    for number in range(len(leaves)):
        leaves[number] = jax.block_until_ready(on_device(leaves[number]))
    weights, rest = jax.tree.unflatten(places, leaves)
    del leaves
    count = sum(leaf.size for leaf in jax.tree.leaves(weights))
    inputs = example(spec, shape, options.batch_size)
    if training:
        step = trainer(spec, graph, weights, rest, inputs)
    else:
        step = predictor(graph, weights, rest, inputs)
    del weights, rest
    for _ in range(1 + options.warmup):
        jax.block_until_ready(step())
    times_s = []
    for _ in range(options.steps):
        began = time.perf_counter()
        jax.block_until_ready(step())
        times_s.append(time.perf_counter() - began)
    found = {
        "median_s": statistics.median(times_s),
        "fastest_s": min(times_s),
        "peak_rss_bytes": peak_rss_bytes(),
        "parameters": count,
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def built(name: str, size: int | None) -> tuple[Any, Any, Any]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from benchmarks.jax import catalogue
    from benchmarks.jax._support.nets.layers import Layers

    spec = catalogue.find(name)
    shape = spec.input_shape
    if size is not None:
        shape = (size,) if spec.input_kind == "tokens" else (shape[0], size, size)
    return spec, shape, spec.build(shape)(Layers("float32", 0))


def on_device(leaf: Any) -> Any:
    return jnp.array(leaf) if isinstance(leaf, np.ndarray) else leaf


def example(spec: Any, shape: Any, batch: int) -> Any:
    numbers = np.random.default_rng(0)
    if spec.input_kind == "tokens":
        tokens = numbers.integers(spec.classes, size=(batch, *shape))
        return jnp.array(tokens.astype(np.int32))
    sizes = (*shape[1:], shape[0]) if len(shape) == 3 else shape
    return jnp.array(numbers.standard_normal((batch, *sizes), np.float32))


def predictor(graph: Any, weights: Any, rest: Any, inputs: Any) -> Any:
    @jax.jit  # type: ignore[untyped-decorator]
    def forward(weights: Any, rest: Any, inputs: Any) -> Any:
        return nnx.merge(graph, weights, rest, copy=True)(inputs)

    return lambda: forward(weights, rest, inputs)


def trainer(spec: Any, graph: Any, weights: Any, rest: Any, inputs: Any) -> Any:
    """Return a step of gradient descent with momentum; its state is given to the device."""
    # With 0.01, the loss of VGG would become NaN, and that of the dense nets 0: gradients and
    # momentum would be subnormal numbers, which are slow on a CPU.
    rate = 0.0001 if spec.name.startswith(UNNORMALISED) else 0.01
    descent = optax.sgd(rate, momentum=0.9)
    labels = inputs if spec.target != "class" else jnp.zeros(len(inputs), jnp.int32)

    def loss(weights: Any, rest: Any, inputs: Any, labels: Any) -> Any:
        model = nnx.merge(graph, weights, rest, copy=True)
        value = loss_of(spec, model(inputs), labels)
        return value, nnx.split(model, nnx.Param, ...)[2]

    def train(state: Any, inputs: Any, labels: Any) -> Any:
        weights, rest, momentum = state
        gradients, (value, rest) = with_value(weights, rest, inputs, labels)
        updates, momentum = descent.update(gradients, momentum, weights)
        return (optax.apply_updates(weights, updates), rest, momentum), value

    def with_value(weights: Any, rest: Any, inputs: Any, labels: Any) -> Any:
        (value, rest), gradients = jax.value_and_grad(loss, has_aux=True)(
            weights, rest, inputs, labels
        )
        return gradients, (value, rest)

    compiled = jax.jit(train, donate_argnums=0)
    state = (weights, rest, descent.init(weights))

    def step() -> Any:
        nonlocal state
        state, value = compiled(state, inputs, labels)
        return state, value

    return step


def loss_of(spec: Any, output: Any, labels: Any) -> Any:
    if spec.target == "none":
        return sum(jnp.mean(jnp.square(part)) for part in jax.tree.leaves(output))
    if spec.target == "next_token":
        output, labels = output[:, :-1], labels[:, 1:]
    return optax.softmax_cross_entropy_with_integer_labels(output, labels).mean()


def peak_rss_bytes() -> int:
    """Return the kernel's mark of this process's resident memory (VmHWM of proc(5))."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


if __name__ == "__main__":
    sys.exit(main())
