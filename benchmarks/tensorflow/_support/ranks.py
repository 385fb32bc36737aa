"""Run the processes of a scaling benchmark: groups of workers that train in turns.

All are on this machine, and only the loopback interface is used. A worker of tf.distribute trains
for one round when it reads a line on its standard input, and writes the times of its steps as a
line of the rank's file.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks._support import child

_INTERVAL_S = 0.02


class RankError(RuntimeError):
    """A rank failed; the message names it and the reason."""


class Group:
    """The ranks of one level; without communication each is a cluster of its own."""

    def __init__(self, order: Mapping[str, Any], *, ranks: int, folder: Path) -> None:
        self.ranks = ranks
        self.folder = folder
        self.silence_s = float(order["silence_s"])
        folder.mkdir(parents=True)
        addresses = free_addresses(ranks)
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank in range(ranks):
            together = order["communication"]
            own = addresses if together else [addresses[rank]]
            told = {"addresses": own, "index": rank if together else 0}
            self._start(rank, {**order, **told, "batch_size": order["batch_sizes"][ranks]})

    def ready(self) -> list[dict[str, Any]]:
        """Wait until every rank has built and compiled its model; return their facts."""
        return [line["ready"] for line in self._lines(0)]

    def turn(self, number: int) -> list[tuple[float, ...]]:
        """Make all ranks train for one round; return the seconds of each rank's steps."""
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has died: the wait says so
                process.stdin.write(b"%d\n" % number)
                process.stdin.flush()
        lines = self._lines(number + 1)
        return [tuple(step_ns / 1e9 for step_ns in line["step_ns"]) for line in lines]

    def end(self) -> None:
        """End all processes; their results are on disk."""
        for process in self._processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()

    def _start(self, rank: int, order: dict[str, Any]) -> None:
        path = self.folder / f"rank_{rank}_order.json"
        task = {"module": __name__, "function": "main"}
        child.write_order(path, {**order, **task, "file": str(self._file(rank))})
        self._file(rank).touch()
        with ExitStack() as stack:
            log = stack.enter_context(self._log(rank).open("wb"))
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, str(child.PROGRAM), str(path)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=_environment(rank, gpus=order["device"] == "gpu"),
                )
            )

    def _lines(self, number: int) -> list[dict[str, Any]]:
        """Wait for a numbered line in every rank's file, and return these lines."""
        waiting_since = time.monotonic()
        while True:
            lines = [self._file(rank).read_bytes().split(b"\n")[:-1] for rank in range(self.ranks)]
            if all(len(of_rank) > number for of_rank in lines):
                return [json.loads(of_rank[number]) for of_rank in lines]
            for rank, process in enumerate(self._processes):
                if process.poll() is not None:
                    raise self._failure(rank, child.ending(process.returncode))
            if time.monotonic() - waiting_since > self.silence_s:
                late = next(rank for rank, found in enumerate(lines) if len(found) <= number)
                raise self._failure(late, f"nothing in {self.silence_s:g} s")
            time.sleep(_INTERVAL_S)

    def _failure(self, rank: int, what: str) -> RankError:
        said = child.last_line(self._log(rank)) or "it said nothing"
        return RankError(f"rank {rank} of {self.ranks}: {what}: {said} (log: {self._log(rank)})")

    def _file(self, rank: int) -> Path:
        return self.folder / f"rank_{rank}.jsonl"

    def _log(self, rank: int) -> Path:
        return self.folder / f"rank_{rank}.log"


def free_addresses(number: int) -> list[str]:
    """Return addresses of this machine that were free a moment ago."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def _environment(rank: int, *, gpus: bool) -> dict[str, str]:
    """Return a rank's environment: one GPU, and no proxy, which gRPC would use for loopback."""
    known = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    known["CUDA_VISIBLE_DEVICES"] = _device(rank) if gpus else ""
    return known


def _device(rank: int) -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(rank) if visible is None else visible.split(",")[rank]


READY = "ready"  # the file's first line: built, compiled, warm


def main(order: dict[str, Any]) -> None:
    """Carry out the order; each line is written as soon as it is known."""
    # TensorFlow reads its part in the cluster from the environment, when it makes the strategy.
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": order["addresses"]},
            "task": {"type": "worker", "index": order["index"]},
        }
    )
    step, facts = _prepared(order)
    with Path(order["file"]).open("a", encoding="utf-8", buffering=1) as file:
        file.write(json.dumps({READY: facts}) + "\n")
        for line in sys.stdin:
            step()  # untimed: ranks that communicate leave it together
            steps = order["steps_by_round"][int(line)]
            times_ns = [_timed_ns(step) for _ in range(steps)]
            file.write(json.dumps({"round": int(line), "step_ns": times_ns}) + "\n")


def _timed_ns(step: Callable[[], float]) -> int:
    began_ns = time.perf_counter_ns()
    step()
    return time.perf_counter_ns() - began_ns


def _prepared(order: dict[str, Any]) -> tuple[Callable[[], float], dict[str, Any]]:
    """Return a step of the model, warmed up; it returns the loss, so that its work is done."""
    from benchmarks._support.models import keras_model
    from benchmarks._support.models.descent import Descent
    from benchmarks.tensorflow import catalogue
    from benchmarks.tensorflow._support import workload
    from benchmarks.tensorflow._support.framework import tf

    tf.config.threading.set_intra_op_parallelism_threads(order["threads_per_rank"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    replicas = strategy.num_replicas_in_sync
    spec = catalogue.find(order["model"])
    tf.keras.utils.set_random_seed(order["seed"])
    with strategy.scope(), keras_model.precision(tf.keras, order["dtype"]):
        model = spec.build(tuple(order["input_shape"] or spec.input_shape))
        optimizer = workload.optimizer_of(
            model, Descent(learning_rate=spec.learning_rate), half=False
        )
    tf.random.set_seed(order["seed"] + order["index"])  # every rank has examples of its own
    inputs = workload.example_inputs(spec, model, order["batch_size"])
    labels = workload.example_labels(spec, inputs)

    def replica(inputs: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = workload.loss_of(spec, model(inputs, training=True), labels)
            # The optimizer adds the replicas' gradients up; their mean is wanted.
            shared = loss / replicas
        gradients = tape.gradient(shared, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    run = tf.function(lambda: strategy.run(replica, args=(inputs, labels)))

    def step() -> float:
        return float(run().numpy())

    for _ in range(1 + order["warmup"]):
        step()
    operations = run.get_concrete_function().graph.get_operations()
    return step, {
        "replicas": replicas,
        "collectives": sum(operation.type.startswith("Collective") for operation in operations),
        # Equal in all ranks when they have trained one model, whatever their examples.
        "weights": float(
            tf.add_n([tf.reduce_sum(tf.abs(weight)) for weight in model.trainable_variables])
        ),
        "tensorflow_version": tf.__version__,
    }
