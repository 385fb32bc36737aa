"""A Flax model on its device, one step of inference or training, and the way of its input.

A step is a pure function of the model's state (`benchmarks.jax._support.step`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._support.models import loss_scale
from benchmarks._support.models.descent import Descent
from benchmarks._support.models.loss_scale import LossScale
from benchmarks._support.models.spec import Built, ModelSpec, Shape
from benchmarks.jax._support.flax_library import nnx, optax
from benchmarks.jax._support.framework import jax
from benchmarks.jax._support.nets.layers import Layers
from benchmarks.jax._support.placement import Placement
from benchmarks.jax._support.step import Step
from benchmarks.jax.catalogue import find
from perfrun import SetupError

jnp = jax.numpy
FIRST_SCALE = 2.0**15  # of the loss in float16; that of Keras' scaler


@dataclass(frozen=True, kw_only=True)
class Network(Built):
    """A Flax model with random weights, taken apart into its structure and its state."""

    structure: Any  # nnx.GraphDef
    weights: Any
    rest: Any  # statistics of batch normalisation, keys of dropout
    dtype: str

    def parameter_counts(self) -> tuple[int, int]:
        """Return the number of the weights, all of which are trained, twice."""
        count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.weights))
        return count, count

    def output(self, weights: Any, rest: Any, inputs: Any) -> tuple[Any, Any]:
        """Return what the model gives for inputs, and the rest of its state afterwards."""
        model = nnx.merge(self.structure, weights, rest, copy=True)  # variables of this trace
        output = model(inputs)
        return output, nnx.split(model, nnx.Param, ...)[2]


def build(
    name: str,
    *,
    shape: Shape | None,
    dtype: str,
    seed: int,
    placement: Placement,
    training: bool,
) -> Network:
    """Build a model of the catalogue; SetupError for a name or a shape that it does not have."""
    spec = find(name)
    shape = spec.shape_for(shape)
    began = time.perf_counter()
    try:
        # In the same scope as the optimiser's state: JAX compiles the making of zeros for each one.
        with placement.scope():
            model = spec.build(shape)(Layers(dtype, seed))
    except (TypeError, ValueError, ZeroDivisionError) as error:
        if isinstance(error, SetupError):
            raise
        line = " ".join(str(error).split())[:200]
        raise SetupError(f"{name} cannot be built for {shape}: {line}") from error
    model.train() if training else model.eval()
    structure, *state = nnx.split(model, nnx.Param, ...)
    leaves, places = jax.tree.flatten(state)
    del model, state
    with placement.scope():
        for number in range(len(leaves)):  # one by one: the weights are never there twice
            leaves[number] = jax.block_until_ready(_on_device(leaves[number]))
    weights, rest = jax.tree.unflatten(places, leaves)
    return Network(
        spec=spec,
        structure=structure,
        weights=weights,
        rest=rest,
        shape=shape,
        dtype=dtype,
        build_s=time.perf_counter() - began,
    )


def _on_device(leaf: Any) -> Any:
    # A copy: a buffer that numpy owns could not be given to the next step.
    return jnp.array(leaf) if isinstance(leaf, np.ndarray) else leaf


def example_inputs(spec: ModelSpec, shape: Shape, batch_size: int, seed: int) -> Any:
    """Make random inputs: tokens of the vocabulary, or normal numbers, channels last."""
    numbers = np.random.default_rng(seed)
    if spec.input_kind == "tokens":
        return jnp.array(_below(spec, numbers, (batch_size, *shape)))
    sizes = (*shape[1:], shape[0]) if len(shape) == 3 else shape
    return jnp.array(numbers.standard_normal((batch_size, *sizes), np.float32))


def _below(spec: ModelSpec, numbers: np.random.Generator, sizes: tuple[int, ...]) -> Any:
    """Draw numbers of classes, or of words."""
    return numbers.integers(spec.classes or 1, size=sizes).astype(np.int32)


def example_labels(spec: ModelSpec, inputs: Any, seed: int) -> Any:
    """Make random classes; for text return the tokens: each is predicted from those before it."""
    if spec.target != "class":
        return inputs
    numbers = np.random.default_rng(seed)
    return jnp.array(_below(spec, numbers, (len(inputs),)))


def forward(network: Network, *, eager: bool) -> Step:
    """Return a step of inference: batch normalisation and dropout infer."""

    def function(state: Any, inputs: Any) -> Any:
        weights, rest = state
        output, _ = network.output(weights, rest, inputs)
        return jax.tree.map(lambda part: part.astype(jnp.float32), output)

    return Step(function, (network.weights, network.rest), changes=False, eager=eager)


def training(network: Network, descent: Descent, *, eager: bool) -> Step:
    """Return a step of stochastic gradient descent with momentum, which gives the loss.

    Its state, weights and momentum included, is given to the device and replaced by the next one.
    The loss of float16 is scaled: a step whose gradients overflow updates nothing and halves the
    scale.
    """
    optimizer = optax.sgd(descent.learning_rate, momentum=descent.momentum)
    if descent.weight_decay:  # XLA would compute the products with zero, too
        optimizer = optax.chain(optax.add_decayed_weights(descent.weight_decay), optimizer)
    half = network.dtype == "float16"
    state = {
        "weights": network.weights,
        "rest": network.rest,
        "optimizer": optimizer.init(network.weights),
        "scale": jnp.float32(FIRST_SCALE if half else 1.0),
        "updates": jnp.int32(0),  # in a row
    }

    def function(state: Any, inputs: Any, labels: Any) -> Any:
        weights, scale = state["weights"], state["scale"]

        def loss(weights: Any) -> Any:
            output, rest = network.output(weights, state["rest"], inputs)
            value = loss_of(network.spec, output, labels)
            return value * scale if half else value, (value, rest)

        gradients, (value, rest) = jax.grad(loss, has_aux=True)(weights)
        if half:
            gradients = jax.tree.map(lambda each: each / scale, gradients)
        changes, optimizer_state = optimizer.update(gradients, state["optimizer"], weights)
        new = {
            "weights": optax.apply_updates(weights, changes),
            "rest": rest,
            "optimizer": optimizer_state,
            "scale": scale,
            "updates": state["updates"] + 1,
        }
        return (_unless_overflown(gradients, new, state) if half else new), value

    return Step(function, state, changes=True, eager=eager)


def _unless_overflown(gradients: Any, new: Any, old: Any) -> Any:
    """Return the new state; where a gradient is not finite, the old one with half the scale."""
    finite = jnp.stack([jnp.isfinite(each).all() for each in jax.tree.leaves(gradients)]).all()
    skipped = {**old, "scale": old["scale"] / 2, "updates": jnp.zeros_like(old["updates"])}
    return jax.tree.map(lambda a, b: jax.lax.select(finite, a, b), new, skipped)


class LossScaler(loss_scale.LossScaler):
    """The scale of the loss in the state of a step of training."""

    def __init__(self, step: Step) -> None:
        super().__init__(FIRST_SCALE)
        self._step = step

    def read(self) -> LossScale:
        state = self._step.state
        return LossScale(scale=float(state["scale"]), updates=int(state["updates"]))

    def halve(self) -> None:
        state = self._step.state
        self._step.state = {**state, "scale": state["scale"] / 2}


def loss_of(spec: ModelSpec, output: Any, labels: Any) -> Any:
    """Return the cross entropy of the class or the next token, else the mean of the squares."""
    parts = [part.astype(jnp.float32) for part in jax.tree.leaves(output)]
    if spec.target == "none":
        return sum(jnp.square(part).mean() for part in parts)
    logits = parts[0]
    if spec.target == "next_token":
        logits, labels = logits[:, :-1], labels[:, 1:]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def check_output(spec: ModelSpec, output: Any, batch_size: int) -> None:
    """Raise RuntimeError for an output of the wrong shape, or not finite."""
    for part in jax.tree.leaves(output):
        shape = tuple(part.shape)
        expected = batch_size if spec.target != "class" else (batch_size, spec.classes)
        got = shape[0] if spec.target != "class" else shape
        if got != expected or not bool(jnp.isfinite(part).all()):
            raise RuntimeError(
                f"{spec.name} gave {shape}; expected finite numbers, of shape {expected}"
            )


class Transfers:
    """Copies of arrays from the host to the device, and of results from there."""

    def __init__(self, arrays: tuple[Any, ...], placement: Placement) -> None:
        self._placement = placement
        self._source = tuple(np.array(array) for array in arrays)

    def bring(self) -> tuple[Any, ...]:
        """Return the input, copied to the device."""
        with self._placement.scope():
            return tuple(jnp.array(array) for array in self._source)

    def out(self, result: Any) -> Any:
        """Return the result in host memory, a copy on the CPU, too."""
        return jax.tree.map(np.array, result)

    @property
    def facts(self) -> dict[str, Any]:
        """Return the report's notes on the transfers."""
        on_cpu = self._placement.kind == "cpu"
        return {"data_copied": "within host memory" if on_cpu else "from pageable host memory"}
