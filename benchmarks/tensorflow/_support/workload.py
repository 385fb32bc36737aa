"""A Keras model on its device, one step of inference or training, and the way of its input.

A model is built by name, in a floating point type. A step runs eagerly, as a graph, or compiled by
XLA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks._support.models import keras_model, loss_scale
from benchmarks._support.models.descent import Descent
from benchmarks._support.models.keras_model import Network, scales_pixels
from benchmarks._support.models.loss_scale import LossScale
from benchmarks._support.models.spec import ModelSpec, Shape
from benchmarks.tensorflow import catalogue
from benchmarks.tensorflow._support.framework import tf
from benchmarks.tensorflow._support.placement import Placement


def build(
    name: str, *, shape: Shape | None, dtype: str, seed: int, placement: Placement
) -> Network:
    """Build a model of the catalogue; SetupError for a name or a shape that it does not have."""
    spec = catalogue.find(name)
    shape = spec.shape_for(shape)
    with placement.scope():
        return keras_model.build(tf.keras, spec, shape, dtype=dtype, seed=seed)


def as_run(function: Callable[..., Any], mode: str) -> Any:
    """Return the function as it is (`eager`), as a graph, or compiled whole by XLA (`xla`)."""
    return function if mode == "eager" else tf.function(function, jit_compile=mode == "xla")


def forward(model: Any) -> Callable[[Any], Any]:
    """Return a forward pass without gradients; batch normalisation and dropout infer."""
    return lambda inputs: model(inputs, training=False)


def optimizer_of(model: Any, descent: Descent, *, half: bool) -> Any:
    """Return the optimizer of a model's weights, stochastic gradient descent with momentum.

    With `half`, it scales the loss, because the range of float16 is small: then a `LossScaler` of
    it must settle before steps are timed.
    """
    optimizer = tf.keras.optimizers.SGD(descent.learning_rate, descent.momentum)
    if half:
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(
            optimizer, dynamic_growth_steps=loss_scale.NEVER
        )
    optimizer.build(model.trainable_variables)  # variables may not be made inside a graph
    return optimizer


def training(
    model: Any, spec: ModelSpec, optimizer: Any, *, half: bool, weight_decay: float = 0.0
) -> Callable[[Any, Any], Any]:
    """Return a step of gradient descent on (inputs, labels), which returns the loss.

    `weight_decay` is the factor of the weights that is added to their gradients, as in PyTorch.
    (Keras' own setting of this name takes from the weights, past the momentum.)
    """

    def step(inputs: Any, labels: Any) -> Any:
        weights = model.trainable_variables
        with tf.GradientTape() as tape:
            loss = loss_of(spec, model(inputs, training=True), labels)
            scaled = optimizer.scale_loss(loss) if half else loss
        gradients = tape.gradient(scaled, weights)
        if weight_decay:
            factor = optimizer.scale_loss(weight_decay) if half else weight_decay
            gradients = [
                gradient + factor * weight
                for gradient, weight in zip(gradients, weights, strict=True)
            ]
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return loss

    return step


class LossScaler(loss_scale.LossScaler):
    """Keras' scaler."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(float(optimizer.dynamic_scale.numpy()))
        self._optimizer = optimizer

    def read(self) -> LossScale:
        return LossScale(
            scale=float(self._optimizer.dynamic_scale.numpy()),
            updates=int(self._optimizer.step_counter.numpy()),
        )

    def halve(self) -> None:
        self._optimizer.dynamic_scale.assign(self.read().scale / 2)


def loss_of(spec: ModelSpec, outputs: Any, labels: Any) -> Any:
    """Return the cross entropy of the class or the next token, else the mean of the squares."""
    if spec.target == "none":
        parts = [tf.cast(part, tf.float32) for part in tf.nest.flatten(outputs)]
        return tf.add_n([tf.reduce_mean(tf.square(part)) for part in parts])
    if spec.target == "next_token":
        outputs, labels = outputs[:, :-1], labels[:, 1:]
    outputs = tf.cast(outputs, tf.float32)  # as PyTorch's: a loss has more than 16 bits
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)
    return tf.reduce_mean(losses)


def example_inputs(spec: ModelSpec, model: Any, batch_size: int) -> Any:
    """Make random inputs on the current device: pixels of 0 to 255, tokens, or normal features."""
    shape = (batch_size, *model.input_shape[1:])
    if spec.input_kind == "tokens":
        return tf.random.uniform(shape, maxval=spec.classes, dtype=tf.int32)
    if spec.input_kind == "features":
        return tf.random.normal(shape)
    pixels = tf.random.uniform(shape, maxval=255.0)
    return pixels if scales_pixels(tf.keras, model) else pixels / 127.5 - 1.0


def example_labels(spec: ModelSpec, inputs: Any) -> Any:
    """Make random classes; for text return the tokens: each is predicted from those before it."""
    if spec.target != "class":
        return inputs
    return tf.random.uniform((inputs.shape[0],), maxval=spec.classes, dtype=tf.int32)


def check_output(spec: ModelSpec, output: Any, batch_size: int) -> None:
    """Raise RuntimeError for an output of the wrong shape, or not finite."""
    for part in tf.nest.flatten(output):
        right = part.shape[0] == batch_size and bool(tf.reduce_all(tf.math.is_finite(part)))
        if spec.target == "class":
            right = right and tuple(part.shape) == (batch_size, spec.classes)
        if not right:
            raise RuntimeError(
                f"{spec.name} gave {tuple(part.shape)}; expected {batch_size} finite rows"
            )


PAGEABLE = "synthetic/pageable"


class Transfers:
    """Copies of tensors from the host to the device, and of results from there.

    `synthetic/pageable` input is a numpy array. `synthetic/pinned` is a tensor on the host, which
    TensorFlow copies through its pool of pinned memory where there is a GPU. On the CPU both are
    one copy in memory.
    """

    def __init__(self, tensors: tuple[Any, ...], data: str, place: Placement) -> None:
        self._on_cpu = place.kind == "cpu"
        self._data = data
        arrays = [tensor.numpy() for tensor in tensors]
        if data == PAGEABLE:
            self._source = arrays
        else:
            with tf.device("/CPU:0"):
                self._source = [tf.constant(array) for array in arrays]

    def bring(self) -> tuple[Any, ...]:
        """Return the input, copied to the current device."""
        if self._on_cpu:  # where both conversion and identity may only lend the memory
            tensors = (tf.convert_to_tensor(part) for part in self._source)
            return tuple(tf.raw_ops.DeepCopy(x=tensor) for tensor in tensors)
        return tuple(tf.identity(part) for part in self._source)

    def out(self, result: Any) -> Any:
        """Return the result in host memory, as numpy arrays."""
        return tf.nest.map_structure(lambda part: part.numpy(), result)

    @property
    def facts(self) -> dict[str, Any]:
        """Return the report's notes on the transfers."""
        kind = "pageable" if self._data == PAGEABLE else "pinned"
        where = "within host memory" if self._on_cpu else f"from {kind} host memory"
        return {"data_copied": where}
