"""A TensorFlow benchmark that does nothing."""

import tensorflow as tf


class Noop(tf.test.Benchmark):  # type: ignore[misc]
    """What a trial of TensorFlow costs when the method itself is free."""

    def __init__(self, **_: object) -> None:
        super().__init__()

    def noop(self) -> None:
        """Report and return."""
        self.report_benchmark(iters=1, wall_time=0.0)
