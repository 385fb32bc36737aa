"""The base class of shipped benchmarks that have knobs."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.knobs import Settings
from perfrun import Benchmark


class Configured(Benchmark):
    """A benchmark with knobs: PerfZero's constructor, and `self.settings`."""

    # The names of the knobs that the class takes. Any other one given to it is an error.
    takes: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        output_dir: str | None = None,
        root_data_dir: str | None = None,
        tpu: str | None = None,
        **knobs: object,
    ) -> None:
        super().__init__(output_dir=output_dir, root_data_dir=root_data_dir, tpu=tpu, **knobs)
        self.settings = Settings(owner=type(self).__name__, takes=self.takes, **knobs)
