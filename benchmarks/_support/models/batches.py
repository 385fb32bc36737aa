"""One model with several batch sizes: the way of a batch to the device, its step, and the way back.

Each part at each size is a series and a report of its own, named `batch_8_total` and so on: latency
with mean, standard deviation and percentiles, and throughput.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from perfrun import SetupError

if TYPE_CHECKING:
    from benchmarks._support.knobs import Configured
    from benchmarks._support.models.job import Job

LARGER = 8  # the usual second size, beside 1
ON_HOST = ("synthetic/pinned", "synthetic/pageable")


def sizes_of(benchmark: Configured) -> Sequence[int]:
    """Return the batch sizes that the knobs name: `batch_sizes`, else 1 and `batch_size`."""
    sizes = benchmark.settings.value("batch_sizes")
    if sizes is None:
        sizes = (1, benchmark.settings.value("batch_size", LARGER))
    elif benchmark.settings.value("batch_size") is not None:
        raise SetupError("batch_size and batch_sizes are both given; inference_batches takes one")
    return tuple(dict.fromkeys(sizes))


def refuse(benchmark: Configured) -> None:
    """Raise SetupError where several sizes are given to a method that has one."""
    if benchmark.settings.value("batch_sizes") is not None:
        raise SetupError("batch_sizes is for inference_batches; this method takes batch_size")


def measure(
    benchmark: Configured, job: Job, *, notes: Callable[[], dict[str, Any]], **options: Any
) -> None:
    """Measure and report the parts of inference with a job's batch; `options` are `measure`'s."""
    data = benchmark.settings.one_of("data", ON_HOST[0], ON_HOST)
    transfers = job.transfers(data)
    output: Any = None

    def on_device() -> Any:
        nonlocal output
        output = None  # before the next step, or both would lie in memory
        output = job.run()
        return output

    parts: dict[str, Callable[[], Any]] = {
        "on_device": on_device,
        "cpu_to_gpu": transfers.bring,
        "gpu_to_cpu": lambda: transfers.out(output),
        "total": lambda: transfers.out(job.step(*transfers.bring())),
    }
    for name, part in parts.items():
        known = {"metrics": job.network.parameter_metrics()} if part is on_device else {}
        benchmark.measure(
            part,
            name=f"batch_{job.batch_size}_{name}",
            items_per_step=job.batch_size,
            block_size=1,  # each step alone, and each copy
            extras={**notes(), "data": data, **transfers.facts},
            **known,
            **options,
        )
    job.check(output)
