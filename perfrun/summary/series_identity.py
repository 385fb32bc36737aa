"""Build the key of a trial's series from its summary, as texts that a person can read.

When a part of the key changes, a new series begins. Versions, commits and host names are no parts
of it: they explain changes within a series.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from perfrun.dataclass import dataclass
from perfrun.text import redact, redact_words, redacted

_GIB = 2**30
_LARGEST = 1e308
DEFAULT_ALLOCATORS = ("glibc", "musl")  # those of the C libraries
VERSION = "version "  # a source that is no hash begins with it
MOST_VERSION = 100  # characters
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The key of a series, without its metric: what was measured, and on what."""

    method: str
    environment: str  # kind or image, Python's major.minor, framework; no other versions
    hardware: str  # '' when unknown
    driver: str  # of the accelerators; '' without any
    source: str  # SHA-256 of the benchmark's module, or its `version 2`; '' when unknown
    settings: str  # variables, flags of the benchmark, constructor arguments; '' without any


def subject(document: Mapping[str, Any], method: str) -> Subject:
    """Return the subject of a summary."""
    own = section(document, "perfrun")
    driver = section(document, "system_info").get("accelerator_driver_version")
    return Subject(
        method=method,
        environment=environment(document),
        hardware=hardware(document),
        driver=text(driver),
        source=source_of(own),
        settings=settings(document),
    )


def source_of(own: Mapping[str, Any]) -> str:
    """Return the version that the author gave the benchmark, or else the hash of its module."""
    version = own.get("benchmark_version")
    if isinstance(version, str) and 0 < len(version) <= MOST_VERSION:
        return f"{VERSION}{text(version)}"
    return text(own.get("module_sha256"))


def environment(document: Mapping[str, Any]) -> str:
    """Return the environment's name, which stays the same when packages are updated."""
    own = section(document, "perfrun")
    framework = text(section(document, "ml_framework_info").get("name"))
    container = section(own, "container")
    if not own:
        words = [text(section(document, "benchmark_info").get("harness_name")) or "perfzero"]
    elif container:
        words = ["container", repository(container)]
    else:
        python = section(section(own, "environment"), "python")
        words = [_kind(document, python), _python(python)]
    return " ".join(word for word in [*words, framework if framework != "none" else ""] if word)


def _kind(document: Mapping[str, Any], python: Mapping[str, Any]) -> str:
    imported = text(section(section(document, "perfrun"), "imported").get("format"))
    if imported:  # another tool has measured, in another way
        return imported
    if section(document, "setup_info"):  # perfrun itself runs in an image that setup.py built
        return "image"
    if "conda" in text(python.get("build")):
        return "conda"
    return "system" if python.get("prefix") in ("/usr", "/usr/local") else "environment"


def _python(python: Mapping[str, Any]) -> str:
    parts = text(python.get("version")).split(".")
    return f"python{parts[0]}.{parts[1]}" if len(parts) > 1 else ""


def repository(container: Mapping[str, Any]) -> str:
    """Return the image's name without tag and digest; for an image id, the name it came from."""
    name = text(container.get("image"))
    digests = container.get("repo_digests")
    if name.startswith("sha256:") or (len(name) >= 12 and set(name) <= _HEX):
        if not isinstance(digests, list) or not digests:
            return "by id"
        name = text(digests[0])
    name = name.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def hardware(document: Mapping[str, Any]) -> str:
    """Return processor, memory, accelerators and their limits, without the host's name."""
    system = section(document, "system_info")
    own = section(document, "perfrun")
    machine = section(own, "machine")
    logical, usable = system.get("logical_cpu_count"), machine.get("usable_cpu_count")
    limits = section(section(own, "container"), "limits")
    facts = [
        text(system.get("platform_name")),
        text(system.get("cpu_model")),
        _counted(system.get("physical_cpu_count"), "cores"),
        _counted(logical, "threads"),
        _counted(memory_class_gib(machine.get("memory_bytes")), "GiB"),
        _accelerators(system),
        _counted(usable, "usable") if usable != logical else "",
        _counted(machine.get("cgroup_cpu_limit"), "CPUs at most"),
        _counted(memory_class_gib(machine.get("cgroup_memory_limit_bytes")), "GiB at most"),
        _named("cpuset", limits.get("cpuset")),
        _counted(memory_class_gib(limits.get("memory_bytes")), "GiB a container"),
        _named("gpus", limits.get("gpus")),
    ]
    return ", ".join(fact for fact in facts if fact)


def _accelerators(system: Mapping[str, Any]) -> str:
    model = text(system.get("accelerator_model"))
    return f"{text(system.get('accelerator_count')) or 1} x {model}" if model else ""


def _counted(value: Any, unit: str) -> str:
    return f"{value:g} {unit}" if is_number(value) else ""


def _named(name: str, value: Any) -> str:
    return f"{name} {text(value)}" if value not in (None, "") else ""


def memory_class_gib(size_bytes: Any) -> float | None:
    """Round a memory size up to 4, 5, 6 or 7 times a power of two, as memory is sold.

    The kernel reserves a few percent, which differ between versions and must not begin a new
    series.
    """
    if not is_number(size_bytes) or not 2**20 <= size_bytes < 2**60:
        return None
    gib = size_bytes / _GIB
    step = 2.0**-12
    while 8 * step < gib:
        step *= 2
    return next(part * step for part in (4, 5, 6, 7, 8) if part * step >= gib)


def settings(document: Mapping[str, Any]) -> str:
    """Return variables, allocator, flags of the benchmark and constructor arguments, in one text.

    Another batch size, another number of threads, or another allocator is another series.
    """
    own = section(document, "perfrun")
    env, flags = section(own, "env"), own.get("benchmark_flags")
    variables = [f"{name}={text(env[name])}" for name in sorted(env)]
    words = [_public(variables)] if env else []
    allocator = effective_allocator(section(own, "allocator"))
    if allocator != "default" and not ("LD_PRELOAD" in env and _is_default(own)):
        words.append(shlex.quote(f"--allocator={allocator}"))
    words += [_public(flags)] if isinstance(flags, list) and flags else []
    given = section(section(document, "benchmark_info"), "flags").get("perfzero_constructor_args")
    return " ".join([*words, *([_canonical(given)] if given else [])])


def _public(words: Sequence[Any]) -> str:
    return redact(shlex.join(redact_words(list(map(str, words)))))


def effective_allocator(allocator: Mapping[str, Any]) -> str:
    """Return the allocator of a trial by the name of `--allocator`, or by its library's name.

    `allocator` is `perfrun.allocator` of a summary; an older summary has none.
    """
    asked, name = text(allocator.get("asked")), text(allocator.get("name"))
    if asked not in ("", "default"):
        return asked
    return "default" if name in ("", *DEFAULT_ALLOCATORS) else name


def _is_default(own: Mapping[str, Any]) -> bool:
    """Return True when the allocator was not asked for by its flag."""
    return text(section(own, "allocator").get("asked")) in ("", "default")


def _canonical(given: Any) -> str:
    """Return JSON with sorted keys; a text that is no JSON stays as it is."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
        return json.dumps(redacted(value), sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        return redact(text(given))


def section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object within an object; an empty one when it is absent or something else."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the objects of a list; none when it is something else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return True for a finite number; an int that no float can hold is none."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -_LARGEST < value < _LARGEST
    )


def text(value: Any) -> str:
    """Return a text that every database accepts: no NUL, no half of a surrogate pair."""
    found = value if isinstance(value, str) else "" if value is None else str(value)
    if found.isascii() and "\0" not in found:
        return found
    return found.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
