"""The allocator of a process: the library that provides `malloc`, and the variables that set it up.

The allocator decides how often a step faults its memory in again (docs/research/measurement.md).
What was asked for is not trusted: the library is that in which the functions lie that a program
calls.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

# Names of the libraries that replace `malloc`, best first; the C library's own has none.
LIBRARIES: Dict[str, Tuple[str, ...]] = {
    "jemalloc": ("libjemalloc.so.2", "libjemalloc.so"),
    "tcmalloc": (
        "libtcmalloc_minimal.so.4",
        "libtcmalloc.so.4",
        "libtcmalloc_minimal.so",
        "libtcmalloc.so",
    ),
    "mimalloc": ("libmimalloc.so.2", "libmimalloc.so"),
    "tbbmalloc": ("libtbbmalloc_proxy.so.2", "libtbbmalloc_proxy.so"),
}
_PREFIXES = {
    "libjemalloc": "jemalloc",
    "libtcmalloc": "tcmalloc",
    "libmimalloc": "mimalloc",
    "libtbbmalloc_proxy": "tbbmalloc",
}
_FUNCTIONS = ("posix_memalign", "aligned_alloc", "malloc")  # of an allocator, in every library
# Variables by which allocators are set up.
_SETTINGS = ("MALLOC_", "GLIBC_TUNABLES", "TCMALLOC_", "MIMALLOC_", "LD_PRELOAD", "_RJEM_")
_MOST_SETTINGS, _LONGEST = 20, 500  # a summary is no place for a whole environment
_PROBE_BYTES = 40 * 2**20  # larger than any block that glibc keeps by default (32 MiB)
_PROBE_STEPS = 8  # the last of them counts: a heap grows for some steps


def allocator_in_use() -> Dict[str, Any]:
    """Return the allocator of this process: `name`, `library`, `libc` and `settings`.

    `name` is that of the library, or `glibc` or `musl` for the C library's own; None where that
    cannot be told. `library` is None for the C library's own.
    """
    libc = c_library()
    name, library = libc.partition(" ")[0] if libc else None, None
    mapped = list(_mapped())
    if os.environ.get("LD_PRELOAD") or any(_name_of(path) for _, _, path in mapped):
        holder = _holder_of_malloc(mapped)
        if holder and not _is_libc(holder):
            library = holder
            name = _name_of(holder) or os.path.basename(holder)[:_LONGEST]
    return {"name": name, "library": library, "libc": libc, "settings": _settings()}


def c_library() -> Optional[str]:
    """Return name and version of the C library, as `glibc 2.36`; None where it is not known."""
    try:
        found = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        found = None
    if found:
        return found
    return "musl" if any("ld-musl" in path for _, _, path in _mapped()) else None


def find_library(name: str) -> Optional[str]:
    """Return the path of an allocator's library for this interpreter; None when there is none."""
    for folder in dict.fromkeys(_folders()):
        for file in LIBRARIES[name]:
            path = os.path.join(folder, file)
            if os.path.exists(path):
                return path
    return None


def _folders() -> Iterator[str]:
    """Yield where the dynamic linker looks, and where conda puts its libraries."""
    for prefix in (sys.prefix, sys.base_prefix):
        yield os.path.join(prefix, "lib")
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    triplet = getattr(sys.implementation, "_multiarch", "")
    places = [triplet] if triplet else []
    for root in ("/usr/local", "/usr", "/"):
        for place in [os.path.join("lib", triplet) for triplet in places] + ["lib64", "lib"]:
            yield os.path.join(root, place)


def probe_faults() -> int:
    """Return the page faults of taking, filling and freeing large blocks again and again.

    It is the worse figure of this thread and of another one, which may have a heap of its own.
    """
    import threading

    found: List[int] = [_probed_faults()]
    other = threading.Thread(target=lambda: found.append(_probed_faults()))
    other.start()
    other.join()
    return max(found)


def _probed_faults() -> int:
    import resource

    added = 0
    for _ in range(_PROBE_STEPS):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [bytearray(_PROBE_BYTES), bytearray(_PROBE_BYTES)]
        del blocks
        added = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return added


def answer_about_allocator(order: Dict[str, Any]) -> int:
    """Write down what this environment has of an allocator (an order of the harness)."""
    from perfrun.worker.outcome_file import write_json

    name = order["name"]
    answer = {
        "in_use": allocator_in_use(),
        "found": find_library(name) if name in LIBRARIES else None,
        "preload": os.environ.get("LD_PRELOAD", ""),
        "probe_faults": probe_faults() if order["probe"] else None,
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "probe_bytes": 2 * _PROBE_BYTES,
    }
    write_json(order["answer"], answer)
    return 0


def _mapped() -> Iterator[Tuple[int, int, str]]:
    """Yield begin, end and file of this process's mappings of files."""
    try:
        with open("/proc/self/maps", "rb") as file:
            lines = file.read().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        parts = line.split(None, 5)
        if len(parts) == 6 and parts[5].startswith(b"/"):
            begin, _, end = parts[0].partition(b"-")
            yield int(begin, 16), int(end, 16), os.fsdecode(parts[5])


def _name_of(path: str) -> Optional[str]:
    file = os.path.basename(path)
    return next((name for prefix, name in _PREFIXES.items() if file.startswith(prefix)), None)


def _is_libc(path: str) -> bool:
    return os.path.basename(path).startswith(("libc.so", "libc-", "libc.musl", "ld-musl"))


def _holder_of_malloc(mapped: List[Tuple[int, int, str]]) -> Optional[str]:
    """Return the file in which the allocator's functions lie; None when that cannot be told.

    The address of `malloc` itself may be that of a jump in the interpreter (a canonical PLT entry),
    so functions that an interpreter does not take the address of come first.
    """
    try:
        import ctypes

        program, everything = os.path.realpath("/proc/self/exe"), ctypes.CDLL(None)
    except (ImportError, OSError):
        return None
    for function in _FUNCTIONS:
        known = getattr(everything, function, None)
        address = known and ctypes.cast(known, ctypes.c_void_p).value
        for begin, end, path in mapped:
            if address and begin <= address < end and path != program:
                return path
    return None


def _settings() -> Dict[str, str]:
    """Return the variables by which this process's allocator is set up."""
    names = sorted(name for name in os.environ if name.startswith(_SETTINGS))
    return {name[:_LONGEST]: os.environ[name][:_LONGEST] for name in names[:_MOST_SETTINGS]}
