"""Freed memory that stays with the process, so that operators are compared and not page faults.

An operator that allocates its result gets fresh pages from the kernel at each call if the one
before gave them back. Whether it did depends on what else lies on the heap
(docs/research/measurement.md).
"""

from __future__ import annotations

from perfrun.worker.allocator import allocator_in_use

# Options of mallopt(3), and the values with which glibc gives nothing back.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_KEEPING = ((_TRIM_THRESHOLD, -1), (_MMAP_MAX, 0), (_ARENA_MAX, 1))


def keep_freed_memory() -> str:
    """Have glibc keep freed memory, as `--allocator=retain`; return a text on the allocator.

    Other allocators have no such call: the text names them, and what `--env` sets up stays.
    """
    found = allocator_in_use()
    if found["name"] != "glibc":
        return f"{found['name'] or 'not known'}, as it is set up"
    import ctypes

    library = ctypes.CDLL(None)
    if not all(library.mallopt(option, value) == 1 for option, value in _KEEPING):
        return f"{found['libc']}, as it is set up"
    return f"{found['libc']}, keeps freed memory"
