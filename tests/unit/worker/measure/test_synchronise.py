"""Which wait ends a timed interval, by the devices that TensorFlow says it has.

Real waits are in tests/integration/test_measure.py; no machine of the tests has an accelerator.
"""

from __future__ import annotations

import sys
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
