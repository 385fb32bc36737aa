"""Which wait ends a timed interval, by the devices that TensorFlow says it has, or by the result.

Real waits are in tests/integration/test_measure.py; no machine of the tests has an accelerator.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

from perfrun.worker.measure.synchronise import find_synchroniser

CONTEXT = "tensorflow.python.eager.context"
BARRIER = "tf.test.experimental.sync_devices"
QUEUES = "tensorflow's context.async_wait"


def tensorflow_with(
    monkeypatch: pytest.MonkeyPatch, *kinds: str, with_queues: bool = True
) -> list[str]:
    """Put a TensorFlow with devices of some kinds among the modules; return what is waited for."""
    calls: list[str] = []
    context = SimpleNamespace(context_safe=lambda: SimpleNamespace(_initialized=True))
    if with_queues:
        context.async_wait = lambda: calls.append("queues")
    devices = [SimpleNamespace(device_type=kind) for kind in kinds]

    def listed(kind: str | None = None) -> list[SimpleNamespace]:
        return [device for device in devices if kind in (None, device.device_type)]

    experimental = SimpleNamespace(sync_devices=lambda: calls.append("devices"))
    tensorflow = SimpleNamespace(
        __version__="2.21.0",
        test=SimpleNamespace(experimental=experimental),
        config=SimpleNamespace(list_logical_devices=listed),
        executing_eagerly=lambda: True,
    )
    for name in ("torch", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, CONTEXT, context)  # type: ignore[arg-type]
    return calls


@pytest.mark.parametrize(
    ("kinds", "name", "waited"),
    [
        (("CPU",), QUEUES, "queues"),
        (("CPU", "CPU"), QUEUES, "queues"),
        (("CPU", "GPU"), BARRIER, "devices"),
        (("CPU", "TPU"), BARRIER, "devices"),
        (("CPU", "XPU"), BARRIER, "devices"),
    ],
)
def test_only_with_an_accelerator_does_tensorflows_wait_run_an_operation_on_each_device(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], name: str, waited: str
) -> None:
    calls = tensorflow_with(monkeypatch, *kinds)
    found = find_synchroniser()
    found.finish(None)
    assert (found.names, calls) == ((name,), [waited])


def test_a_tensorflow_without_the_wait_for_its_queues_has_the_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensorflow_with(monkeypatch, "CPU", with_queues=False)
    assert find_synchroniser().names == (BARRIER,)


class Array:
    """Stands for `jax.Array`."""

    def __init__(self) -> None:
        self.waits = 0

    def block_until_ready(self) -> None:
        self.waits += 1


def nested(structure: object) -> list[object]:
    """Return the leaves of a structure, as `jax.tree_util.tree_leaves` does: None is no leaf."""
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, (list, tuple)):
        return [leaf for part in structure for leaf in nested(part)]
    return [] if structure is None else [structure]


def test_jax_is_waited_for_by_what_the_step_returned_or_by_all_that_is_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, elsewhere = Array(), Array(), Array()
    jax_with(monkeypatch, {None: [first, second, elsewhere]})
    wait = find_synchroniser().finish
    wait(first)
    assert (first.waits, second.waits, elsewhere.waits) == (1, 0, 0)
    wait({"a": [second, 3], "b": None})
    assert (first.waits, second.waits, elsewhere.waits) == (1, 1, 0)
    for without_arrays in (None, 3, ()):
        wait(without_arrays)
    assert (first.waits, second.waits, elsewhere.waits) == (4, 4, 3)


def test_a_step_on_the_cpu_of_a_machine_with_a_gpu_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_cpu, on_gpu = Array(), Array()
    jax_with(monkeypatch, {None: [on_gpu], "cuda": [on_gpu], "cpu": [on_cpu]})
    started: dict[str, object] = {}
    platforms = SimpleNamespace(_backends=started)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", platforms)  # type: ignore[arg-type]
    wait = find_synchroniser().finish
    wait(None)
    assert (on_cpu.waits, on_gpu.waits) == (0, 0)  # listing them would start the devices
    started.update(cpu=None, cuda=None)
    wait(None)
    assert (on_cpu.waits, on_gpu.waits) == (1, 1)


def jax_with(monkeypatch: pytest.MonkeyPatch, alive: Mapping[str | None, Sequence[Array]]) -> None:
    """Put a JAX with arrays on some platforms among the modules; None: the default platform."""
    for name in ("torch", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    jax = SimpleNamespace(
        __version__="0.10.2",
        Array=Array,
        tree_util=SimpleNamespace(tree_leaves=nested),
        block_until_ready=lambda arrays: [array.block_until_ready() for array in arrays],
        live_arrays=lambda platform=None: alive[platform],
        default_backend=lambda: "cpu",
    )
    monkeypatch.setitem(sys.modules, "jax", jax)  # type: ignore[arg-type]
