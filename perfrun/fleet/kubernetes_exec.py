"""A command in a container of a pod, by the official client: its output as a stream.

The client's own reader holds all that has come in memory, so its connection is read here, a frame
at a time. What the command writes is a stranger's word; the reader of the stream bounds it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from perfrun.errors import WorkspaceError
from perfrun.shown import line

_OUTPUT, _ERRORS, _STATUS = 1, 2, 3  # channels of Kubernetes' protocol; 0 is standard input
_IDLE_S = 120.0  # without a frame
_END_S = 60.0  # for the command to end after it was told
_CLOSE_S = 1.0
_MOST_ERRORS = 8192
_MOST_STATUS = 1 << 20


class _Status(Struct, frozen=True):
    status: str = ""
    message: str = ""


class PodCommand:
    """A command that runs in a pod. Its output is read like a file."""

    def __init__(self, connection: Any, most_s: float) -> None:
        self._connection = connection
        self._end = time.monotonic() + most_s
        self._waiting = bytearray()
        self._errors = b""
        self._status = b""
        self._is_open = True

    def __enter__(self) -> PodCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        # It is gone, or the other end does not answer: nothing is lost by it.
        with contextlib.suppress(Exception):
            self._connection.settimeout(_CLOSE_S)
            self._connection.close(timeout=_CLOSE_S)
        self._connection.shutdown()

    def read(self, size: int) -> bytes:
        """Return so many bytes of the output, fewer at its end. Raises WorkspaceError."""
        while len(self._waiting) < size and self._is_open:
            self._next(_IDLE_S)
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        return data

    def end(self, said: bytes) -> bool:
        """Write to standard input, and wait for the end; True when the command succeeded."""
        from websocket import ABNF

        try:
            self._connection.send(b"\0" + said, opcode=ABNF.OPCODE_BINARY)
            self._end = time.monotonic() + _END_S
            while self._is_open:
                self._next(_END_S)
                self._waiting.clear()
        except Exception:  # whatever the client raises: then nobody knows
            return False
        return self._said().status == "Success"

    def reason(self) -> str:
        """Return what the command said of its failure, in one line; empty when it said nothing."""
        lines = self._errors.decode("utf-8", "replace").strip().splitlines()
        return line(lines[-1] if lines else self._said().message, 300)

    def _said(self) -> _Status:
        try:
            return msgspec.json.decode(self._status, type=_Status)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _Status()

    def _next(self, most_s: float) -> None:
        """Take the next frame. Raises WorkspaceError when none comes in time."""
        from websocket import ABNF, WebSocketConnectionClosedException, WebSocketTimeoutException

        left = min(most_s, self._end - time.monotonic())
        if left <= 0:
            raise WorkspaceError("the pod takes too long to send it")
        try:
            self._connection.settimeout(left)
            kind, frame = self._connection.recv_data_frame(True)
        except WebSocketTimeoutException:
            raise WorkspaceError(f"the pod has sent nothing for {left:.0f} s") from None
        except (WebSocketConnectionClosedException, OSError):
            self._is_open = False
            return
        except Exception as error:  # of a frame that is none
            raise WorkspaceError(
                f"the connection to the pod broke: {line(str(error), 200)}"
            ) from None
        if kind == ABNF.OPCODE_CLOSE:
            self._is_open = False
        if kind not in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) or not frame.data:
            return
        channel, data = frame.data[0], frame.data[1:]
        if channel == _OUTPUT:
            self._waiting += data
        elif channel == _ERRORS:
            self._errors = (self._errors + data)[-_MOST_ERRORS:]
        elif channel == _STATUS:
            self._status = (self._status + data)[:_MOST_STATUS]


def start(
    api: Any, namespace: str, pod: str, container: str, command: Sequence[str], most_s: float
) -> PodCommand:
    """Start a command in a container; `api` is the client's, and of this call alone."""
    from kubernetes.stream import stream

    answer = _within(
        _IDLE_S,
        lambda: stream(
            api.connect_get_namespaced_pod_exec,
            pod,
            namespace,
            container=container,
            command=list(command),
            stdin=True,
            stdout=True,
            stderr=True,
            tty=False,
            binary=True,
            _preload_content=False,
        ),
    )
    return PodCommand(answer.sock, most_s)


def _within(most_s: float, call: Callable[[], Any]) -> Any:
    """Call something that has no limit of its own. Raises WorkspaceError, and what it raises."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:  # the caller's thread raises it
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(most_s)
    if failed:
        raise failed[0]
    if not found:
        raise WorkspaceError(f"no answer within {most_s:.0f} s")
    return found[0]
