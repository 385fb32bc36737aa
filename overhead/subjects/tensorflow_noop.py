"""A TensorFlow benchmark that does nothing."""

import tensorflow as tf


class Noop(tf.test.Benchmark):  # type: ignore[misc]
    """A method that costs nothing: a trial costs TensorFlow's import and perfrun's work."""

    def __init__(self, **_: object) -> None:
        super().__init__()

    def noop(self) -> None:
        """Report and return."""
        self.report_benchmark(iters=1, wall_time=0.0)
