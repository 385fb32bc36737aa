"""A file server that never answers: who asks it for a file waits in the kernel, SIGKILL or not.

So do users of NFS whose server is away. Here it is FUSE; needs root, who may mount.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_INIT, _LOOKUP = 26, 1  # opcodes of include/uapi/linux/fuse.h
_DETACH = 2  # MNT_DETACH


@contextlib.contextmanager
def silent_file_server(folder: Path) -> Iterator[threading.Event]:
    """Mount one on `folder`. Yield an event that is set when it was asked for a file.

    In the end all that wait for it are let go.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"this system has no FUSE: {error}")
    target = os.fsencode(folder)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"fuse", target, b"fuse", 0, options) != 0:
        os.close(device)
        pytest.skip(f"FUSE cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    is_asked, is_over = threading.Event(), threading.Event()
    server = threading.Thread(target=_serve, args=(device, is_asked, is_over))
    server.start()
    try:
        yield is_asked
    finally:
        is_over.set()
        server.join()
        os.close(device)
        libc.umount2(target, _DETACH)


def _serve(device: int, is_asked: threading.Event, is_over: threading.Event) -> None:
    while not is_over.is_set():
        if not select.select([device], [], [], 0.02)[0]:
            continue
        request = os.read(device, 1 << 20)
        _, opcode, unique = struct.unpack_from("=IIQ", request)
        if opcode == _INIT:
            # Version 7.31; no read-ahead, no flags, requests of one page.
            body = struct.pack("=IIIIHHIIHH8I", 7, 31, 0, 0, 1, 1, 4096, 1, 1, 0, *[0] * 8)
            os.write(device, struct.pack("=IiQ", 16 + len(body), 0, unique) + body)
        elif opcode == _LOOKUP:
            is_asked.set()
