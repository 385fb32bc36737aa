"""One step of inference or training with a Keras model, eager, as a graph, or compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.models.spec import ModelSpec
from benchmarks.tensorflow.framework import tf

LEARNING_RATE, MOMENTUM = 0.01, 0.9


def as_run(function: Callable[..., Any], mode: str) -> Any:
    """Return the function as it is (`eager`), as a graph, or compiled whole by XLA (`xla`)."""
    return function if mode == "eager" else tf.function(function, jit_compile=mode == "xla")


def forward(model: Any) -> Callable[[Any], Any]:
    """Return a pass without gradients, batch normalisation and dropout as in use."""
    return lambda inputs: model(inputs, training=False)


def training(model: Any, spec: ModelSpec, *, half: bool) -> Callable[[Any, Any], Any]:
    """Return a step of gradient descent on (inputs, labels): forward, backward, update; the loss.

    `half`: float16's range is so small that the loss must be scaled.
    """
    optimizer = tf.keras.optimizers.SGD(learning_rate=LEARNING_RATE, momentum=MOMENTUM)
    if half:
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)  # variables may not be made inside a graph

    def step(inputs: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(spec, model(inputs, training=True), labels)
            scaled = optimizer.scale_loss(loss) if half else loss
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step


def loss_of(spec: ModelSpec, outputs: Any, labels: Any) -> Any:
    """Cross entropy of the class or the next token; without either, the mean of the squares."""
    if spec.target == "none":
        return tf.add_n([tf.reduce_mean(tf.square(part)) for part in tf.nest.flatten(outputs)])
    if spec.target == "next_token":
        outputs, labels = outputs[:, :-1], labels[:, 1:]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)
    return tf.reduce_mean(losses)


def example_inputs(spec: ModelSpec, model: Any, batch_size: int) -> Any:
    """Random inputs on the current device: pixels of 0 to 255, tokens, or normal features."""
    shape = (batch_size, *model.input_shape[1:])
    if spec.input_kind == "tokens":
        return tf.random.uniform(shape, maxval=spec.classes, dtype=tf.int32)
    if spec.input_kind == "features":
        return tf.random.normal(shape)
    pixels = tf.random.uniform(shape, maxval=255.0)
    return pixels if scales_pixels(model) else pixels / 127.5 - 1.0


def scales_pixels(model: Any) -> bool:
    """Whether the model takes pixels as they are, as EfficientNet does, or numbers around zero."""
    kinds = (tf.keras.layers.Rescaling, tf.keras.layers.Normalization)
    waiting = list(model.layers)
    while waiting:
        layer = waiting.pop()
        if isinstance(layer, kinds):
            return True
        waiting.extend(getattr(layer, "layers", ()))
    return False


def example_labels(spec: ModelSpec, inputs: Any) -> Any:
    """Random classes; for text the tokens: each is to be predicted from those before it."""
    if spec.target != "class":
        return inputs
    return tf.random.uniform((inputs.shape[0],), maxval=spec.classes, dtype=tf.int32)


def check_output(spec: ModelSpec, output: Any, batch_size: int) -> None:
    """RuntimeError for an output of the wrong shape, or not finite."""
    for part in tf.nest.flatten(output):
        right = part.shape[0] == batch_size and bool(tf.reduce_all(tf.math.is_finite(part)))
        if spec.target == "class":
            right = right and tuple(part.shape) == (batch_size, spec.classes)
        if not right:
            raise RuntimeError(
                f"{spec.name} gave {tuple(part.shape)}; expected {batch_size} finite rows"
            )
