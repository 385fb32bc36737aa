"""A result that waits where it was measured until it has been taken: in a pod without a volume.

The process of the shard listens on a port from then on. A probe of Kubernetes that sees it makes
the pod `Ready`, so a list of pods says whose results wait, and nothing is started in a pod that
still measures. Who takes a result says so over the connection by which it came: what Kubernetes has
not delivered when a process ends is lost without an error, so the sender must not end before.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Iterator

from perfrun.errors import Interrupted, WorkspaceError
from perfrun.shards.places import ShardPlace
from perfrun.summary.result_folder import write_whole

READY_PORT = 8479
NOT_TAKEN = 74  # EX_IOERR: exit status of a shard whose result nobody took in time
ACKNOWLEDGED = b"taken\n"
_TAKEN = "taken"  # in the folder of a shard
_LOOK_S = 1.0
_LAST_S = 50.0  # after SIGTERM: Kubernetes kills the pod a little later
_ACKNOWLEDGE_S = 3600.0  # to receive everything


def mark_taken(place: ShardPlace) -> None:
    """Let the process that keeps the result of a shard end. Raises WorkspaceError."""
    try:
        write_whole(place.folder / _TAKEN, "")
    except OSError as error:
        raise WorkspaceError(f"{place.folder}: cannot be written: {error.strerror}") from None


def wait_until_taken(place: ShardPlace, most_s: float, port: int = READY_PORT) -> int:
    """Wait until a result has been taken; return 0, or the exit status that says why it was not.

    SIGTERM, by which a node is drained, leaves less than a minute more to take it.
    """
    ends = [time.monotonic() + most_s]
    before = signal.signal(signal.SIGTERM, lambda *_: ends.append(time.monotonic() + _LAST_S))
    try:
        with _listening(port) as server:
            while not (place.folder / _TAKEN).exists():
                if time.monotonic() >= min(ends):
                    return Interrupted.exit_code if len(ends) > 1 else NOT_TAKEN
                if select.select([server] if server else [], [], [], _LOOK_S)[0] and server:
                    with contextlib.suppress(OSError):  # the probe has gone already
                        server.accept()[0].close()
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket | None]:
    """Listen on every address; None where that is not possible: then nobody sees the result."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        try:
            dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
            made = socket.create_server((address, port), family=family, dualstack_ipv6=dual)
        except OSError:
            continue
        with made:
            made.setblocking(False)
            yield made
        return
    yield None


def wait_for_acknowledgement(place: ShardPlace, most_s: float = _ACKNOWLEDGE_S) -> bool:
    """Wait until the other end of standard input says that it has all; False when it does not."""
    said, end = b"", time.monotonic() + most_s
    while not said.endswith(ACKNOWLEDGED):
        left = end - time.monotonic()
        if left <= 0 or not select.select([0], [], [], left)[0]:
            return False
        data = os.read(0, 4096)
        if not data:
            return False
        said = (said + data)[-len(ACKNOWLEDGED) :]
    mark_taken(place)
    return True
