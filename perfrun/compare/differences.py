"""Differences between the environments of two sets of trials, as values. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfrun.errors import UsageError
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import effective_allocator, section

_DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

# Differences of these kinds make a comparison meaningless, unless it is asked for.
GUARDED = ("hardware", "driver", "batch_size", "allocator")
_MIB = 2**20
# Flags that say where results go and how often a method runs, which does not change what is
# measured. Code, image and interpreter are compared by what the trials had, not by these flags.
_PLACES = """
    benchmark_methods benchmark_num_trials execution_id execution_label workspace format quiet
    verbose metrics
    resume seed precision max_trials time_budget max_reruns fail_on_bounds allow_empty git_repos
    python image image_python python_path ml_framework_build_label platform_name system_name debug
    env allocator result_upload_methods use_cached_site_packages root_data_dir timeout profile
    print_perfzero_summary baseline
"""
_NOT_COMPARED = frozenset(_PLACES.split())
Fact = tuple[str, str]  # kind, name
_Facts = dict[Fact, set[str | None]]
# A summary records all facts of these kinds or, if it is PerfZero's, none.
_WHOLE = ("distribution",)
# Hardware facts that may be missing on one side although the hardware is the same.
_MAY_BE_UNKNOWN = ("platform_name", "cpu_model", "physical_cpu_count", "memory", "allocator")
_ORDER = (
    *(*GUARDED, "machine", "container", "python", "framework"),
    *("distribution", "git", "source", "flag", "variable", "perfrun"),
)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One fact that differs. None stands for a fact that is absent or not recorded."""

    kind: str
    name: str
    base: str | None
    new: str | None

    @property
    def text(self) -> str:
        """The difference for people: `torch 2.12 -> 2.13`."""
        name = self.name if self.kind in ("distribution", "git", "variable") else _named(self)
        return f"{name} {_shown(self.base)} -> {_shown(self.new)}"


def differences(
    base: Sequence[SummaryRecord], new: Sequence[SummaryRecord]
) -> tuple[Difference, ...]:
    """Return all differences in a fixed order, each with all values that a set has."""
    left, right = _facts(base), _facts(new)
    unrecorded = _WHOLE if _knows_environment(base) != _knows_environment(new) else ()
    found = []
    for kind, name in sorted(left.keys() | right.keys(), key=_place):
        ours, theirs = left.get((kind, name), set()), right.get((kind, name), set())
        if ours != theirs and kind not in unrecorded:
            found.append(Difference(kind=kind, name=name, base=_joined(ours), new=_joined(theirs)))
    return (*(_unrecorded(kind, left, right) for kind in unrecorded), *found)


def _knows_environment(records: Iterable[SummaryRecord]) -> bool:
    owns = (record.document.get("perfrun") or {} for record in records)
    return any((own.get("environment") or {}).get("python") for own in owns)


def _unrecorded(kind: str, left: _Facts, right: _Facts) -> Difference:
    """Return one difference instead of hundreds, where one side has recorded nothing."""
    counts = [sum(own == kind for own, _ in facts) for facts in (left, right)]
    base, new = (f"{count} recorded" if count else None for count in counts)
    return Difference(kind=kind, name=f"{kind}s", base=base, new=new)


def mixtures(records: Sequence[SummaryRecord]) -> tuple[Fact, ...]:
    """Return the guarded facts that have several values within one set."""
    facts = _facts(records)
    return tuple(f for f in sorted(facts) if f[0] in GUARDED and len(facts[f] - {None}) > 1)


def forbids(difference: Difference) -> bool:
    """Return True for a difference that forbids a comparison, unless it is asked for."""
    if difference.kind not in GUARDED:
        return False
    # PerfZero's summaries lack the memory, which is no reason to refuse; a lacking accelerator is.
    unknown = difference.base is None or difference.new is None
    return not (unknown and difference.name in _MAY_BE_UNKNOWN)


def _facts(records: Iterable[SummaryRecord]) -> _Facts:
    """Return every fact with its values in a set; None stands for trials that lack it."""
    each = [_read(record) for record in records]
    names = {name for facts in each for name in facts}
    found: _Facts = {}
    for kind, name in names:
        # These are facts of a method, so trials of other methods do not count as lacking them.
        of_method = kind in ("batch_size", "source")
        found[kind, name] = {
            facts.get((kind, name)) for facts in each if not of_method or (kind, name) in facts
        }
    return {fact: values for fact, values in found.items() if values != {None}}


def damage(record: SummaryRecord) -> str | None:
    """Return why the facts of a trial cannot be taken from its summary; None when they can."""
    try:
        dict(_of(record))
    except _DAMAGE as error:
        return f"is damaged: {type(error).__name__}: {error}"  # the name alone would not say why
    return None


def _read(record: SummaryRecord) -> dict[Fact, str]:
    """Return the facts of a trial. Raises UsageError for a damaged summary."""
    try:
        return dict(_of(record))
    except _DAMAGE:
        raise UsageError(f"{record.path}: {damage(record)}; leave it out") from None


def _of(record: SummaryRecord) -> Iterator[tuple[Fact, str]]:
    document = record.document
    for kind, name, value in (
        *_hardware(document),
        *_software(document),
        *_asked(record),
    ):
        if value is not None and value != "":
            yield (kind, name), str(value)


def _hardware(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    system = document.get("system_info") or {}
    machine = (document.get("perfrun") or {}).get("machine") or {}
    # Platform names tell machines apart, as in the index.
    for name in ("platform_name", "cpu_model", "physical_cpu_count", "logical_cpu_count"):
        yield "hardware", name, system.get(name)
    yield "hardware", "memory", _size_class(machine.get("memory_bytes"))
    yield "hardware", "accelerator_model", system.get("accelerator_model")
    yield "hardware", "accelerator_count", system.get("accelerator_count")
    yield "driver", "accelerator_driver_version", system.get("accelerator_driver_version")
    yield "machine", "hostname", system.get("hostname")
    for name in ("usable_cpu_count", "frequency_governor", "cgroup_cpu_limit", "kernel"):
        yield "machine", name, machine.get(name)
    limit = machine.get("cgroup_memory_limit_bytes")
    yield "machine", "cgroup_memory_limit_mib", limit and limit // _MIB
    yield "machine", "operating_system", machine.get("operating_system")


def _size_class(size_bytes: int | None) -> str | None:
    """Round memory to 1, 2, 3, 4, 6, 8, 12, ... GiB: the kernel reserves a varying part."""
    if not size_bytes:
        return None
    power = 2 ** math.floor(math.log2(size_bytes / 2**30 * 1.05))
    return f"{power * (1.5 if size_bytes / 2**30 * 1.05 >= 1.5 * power else 1):g} GiB"


def _software(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    own = document.get("perfrun") or {}
    environment = own.get("environment") or {}
    python = environment.get("python") or {}
    yield "python", "python", python.get("version")
    yield "python", "implementation", python.get("implementation")
    yield "python", "build", python.get("build")
    framework = document.get("ml_framework_info") or {}
    if framework.get("name") not in (None, "none"):
        # The distributions contain its version, where they are known.
        if not environment.get("distributions"):
            yield "framework", framework["name"], framework.get("version")
        yield "framework", f"{framework['name']} build", framework.get("build_version")
    for name, version in (environment.get("distributions") or {}).items():
        yield "distribution", name, version
    for name, commit in (environment.get("direct_url_commits") or {}).items():
        yield "git", f"{name} (installed)", commit
    for name, info in (
        (document.get("benchmark_info") or {}).get("site_package_info") or {}
    ).items():
        yield "git", name, (info or {}).get("hash")
    for checkout in own.get("git") or ():
        yield "git", f"{checkout['directory']} local edits", checkout.get("diff_sha256")
    container = own.get("container") or {}
    for name in ("image_id", "engine_version", "rootless", "storage_driver", "network"):
        yield "container", name, container.get(name)
    for name, limit in (container.get("limits") or {}).items():
        yield "container", name, limit if isinstance(limit, str | int) else None
    yield "perfrun", "perfrun", own.get("version")


def _asked(record: SummaryRecord) -> Iterator[tuple[str, str, Any]]:
    document = record.document
    info, own = document["benchmark_info"], document.get("perfrun") or {}
    yield "batch_size", record.method, record.batch_size
    if own:
        allocator = effective_allocator(section(own, "allocator"))
        yield "allocator", "allocator", allocator
    yield "source", record.method, own.get("module_sha256")
    for name, value in (info.get("flags") or {}).items():
        if name not in _NOT_COMPARED and value:
            yield "flag", f"--{name}", value
    yield "flag", "--", " ".join(own.get("benchmark_flags") or ())
    for name, value in {**(info.get("env_vars") or {}), **(own.get("env") or {})}.items():
        yield "variable", name, value


def _place(fact: Fact) -> tuple[int, str]:
    return _ORDER.index(fact[0]), fact[1]


def _joined(values: set[str | None]) -> str | None:
    if values <= {None}:
        return None
    return " | ".join(sorted("(none)" if value is None else value for value in values))


def _named(difference: Difference) -> str:
    if difference.kind == "source":
        return f"source of {difference.name}"
    if difference.kind == "batch_size":
        return f"batch size of {difference.name}"
    if difference.name == "--":
        return "flags after --"
    return difference.name.replace("_", " ") if difference.kind != "flag" else difference.name


def _shown(value: str | None) -> str:
    if value is None:
        return "(none)"
    # The beginnings of hashes tell them apart.
    words = [w[:12] if len(w) >= 40 and w.isalnum() else w for w in value.split(" ")]
    return " ".join(w[:19] if w.startswith("sha256:") else w for w in words)
