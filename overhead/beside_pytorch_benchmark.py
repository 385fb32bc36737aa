"""Measure the same model with pytorch-benchmark and with perfrun, in turns; print a table.

    python overhead/beside_pytorch_benchmark.py --model=efficientnet_b0 --batch_size=4

It needs an interpreter with PyTorch, torchvision and pytorch-benchmark (0.3.6), and this folder's
parent in PYTHONPATH. It compares the figures that pytorch-benchmark gets right on a CPU: the
parameters, the multiply-adds (which it calls flops), and the time and rate of a batch.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import statistics
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.torch._support.workload import Network
from benchmarks.torch.model import Model


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="efficientnet_b0")
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(argv)
    benchmark = importlib.import_module("pytorch_benchmark").benchmark
    logging.disable(logging.INFO)
    model = Model(model=options.model, intra_threads=options.threads)
    job = model.job(training=False, batch_size=options.batch_size)
    network = job.network
    assert isinstance(network, Network)
    theirs: list[dict[str, Any]] = []
    ours: list[Any] = []

    def their_turn() -> None:
        sample = job.arguments[0]
        theirs.append(benchmark(network.module, sample, num_runs=options.runs))

    def our_turn() -> None:
        ours.append(
            model.measure(
                job.run,
                items_per_step=options.batch_size,
                warmup=max(1, options.runs // 10),
                iterations=options.runs,
                block_size=1,
                report=False,
            )
        )

    turns: tuple[Callable[[], None], ...] = (their_turn, our_turn)
    for number in range(options.rounds):
        for turn in turns if number % 2 else reversed(turns):
            turn()
    work = job.work()
    counts = {metric["name"]: metric["value"] for metric in network.parameter_metrics()}
    rows = [
        ("parameters", theirs[0]["params"], counts["trainable_parameters"], None),
        (
            "multiply-adds of an example",
            theirs[0]["flops"],
            (work.flops_per_example or 0) / 2,
            None,
        ),
        *_timing_rows(options.batch_size, theirs, ours),
    ]
    sys.stdout.write(
        "| | pytorch-benchmark | perfrun | ratio | of half of the pairs |\n|---|---|---|---|---|\n"
    )
    for name, their, our, pairs in rows:
        quarters = statistics.quantiles(pairs, n=4) if pairs else ()
        spread = f"{quarters[0]:.3f} to {quarters[2]:.3f}" if quarters else ""
        ratio = quarters[1] if quarters else our / their
        sys.stdout.write(f"| {name} | {their:,.9g} | {our:,.9g} | {ratio:.3f} | {spread} |\n")
    return 0


def _timing_rows(size: int, theirs: list[dict[str, Any]], ours: list[Any]) -> list[Any]:
    """Return the medians over all rounds of the mean times and rates, and the ratios of pairs.

    The times are means because pytorch-benchmark has no median. A busy moment falls on both sides
    of a pair.
    """
    block = [found["timing"][f"batch_size_{size}"]["on_device_inference"] for found in theirs]
    their_s = [found["metrics"]["seconds_per_batch_mean"] for found in block]
    their_rate = [found["metrics"]["batches_per_second_mean"] for found in block]
    our_s = [measured.mean_s for measured in ours]
    our_rate = [statistics.mean(1 / time_s for time_s in measured.times_s) for measured in ours]
    rows = []
    for name, their, our in (
        (f"seconds of a batch of {size}, mean", their_s, our_s),
        ("batches per second, mean", their_rate, our_rate),
    ):
        pairs = [mine / other for mine, other in zip(our, their, strict=True)]
        rows.append((name, statistics.median(their), statistics.median(our), pairs))
    return rows


if __name__ == "__main__":
    sys.exit(main())
