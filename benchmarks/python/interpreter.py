"""Everyday operations of the Python interpreter: no framework, nothing to install."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from typing import Any

from benchmarks._support.knobs import Configured

OPERATIONS = 100_000  # attribute reads or list items in one step: a few milliseconds
ROUND_TRIPS = 20


class Interpreter(Configured):
    """Everyday operations of pure Python, each repeated many times within one timed step."""

    takes = ("iterations", "warmup")

    def attribute_access(self) -> None:
        """Read an instance attribute in a loop."""
        point = _Point()

        def step() -> None:
            for _ in range(OPERATIONS):
                point.x  # noqa: B018 (reading it is the work)

        self._run(step, OPERATIONS)

    def list_building(self) -> None:
        """Build a list of squares by a list comprehension."""
        built: list[int] = []

        def step() -> None:
            nonlocal built
            built = [number * number for number in range(OPERATIONS)]

        self._run(step, OPERATIONS)
        if built[-1] != (OPERATIONS - 1) ** 2:
            raise RuntimeError(f"the list ends with {built[-1]!r}")

    def json_round_trip(self) -> None:
        """Write a document of 100 records as JSON text and read it back."""
        document = _document()
        read: dict[str, Any] = {}

        def step() -> None:
            nonlocal read
            for _ in range(ROUND_TRIPS):
                read = json.loads(json.dumps(document))

        self._run(step, ROUND_TRIPS)
        if read != document:
            raise RuntimeError("the document came back changed")

    def _run(self, step: Callable[[], None], operations: int) -> None:
        warmup = self.settings.value("warmup", 3)
        timed = self.measure(
            step,
            items_per_step=operations,
            item="operation",
            warmup=warmup,
            iterations=self.settings.value("iterations", 50),
            block_size=1,
            report=False,
        )
        per_operation = {"name": "operation_median_s", "value": timed.median_s / operations}
        extras = {
            "operations_per_step": operations,
            "warmup": warmup,
            "python_version": platform.python_version(),
            "python_implementation": platform.python_implementation(),
        }
        self.report_benchmark(**timed.report_arguments(extras, (per_operation,)))


class _Point:
    def __init__(self) -> None:
        self.x = 1.0


def _document() -> dict[str, Any]:
    return {
        "records": [
            {"id": number, "name": f"record-{number}", "values": [number / 7, None, True]}
            for number in range(100)
        ]
    }
