"""What differs between the surroundings of two sets of trials, as values. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfrun.errors import UsageError
from perfrun.summary.record import SummaryRecord

# Kinds that make a comparison meaningless unless it is asked for.
GUARDED = ("hardware", "driver", "batch_size")
_MIB = 2**20
# Flags that say where results go and how often a method runs: no part of what is measured. Code,
# image and interpreter are there as what they turned out to be.
_PLACES = """
    benchmark_methods benchmark_num_trials execution_id execution_label workspace format quiet
    resume seed precision max_trials time_budget max_reruns fail_on_bounds allow_empty git_repos
    python image image_python python_path ml_framework_build_label platform_name system_name debug
    env result_upload_methods use_cached_site_packages root_data_dir timeout
    profile
"""
_NOT_COMPARED = frozenset(_PLACES.split())
Fact = tuple[str, str]  # kind, name
_Facts = dict[Fact, set[str | None]]
# Kinds of which a summary has all or, if it is PerfZero's, nothing.
_WHOLE = ("distribution",)
# Hardware that one side may not have recorded, and be the same all the same.
_MAY_BE_UNKNOWN = ("platform_name", "cpu_model", "physical_cpu_count", "memory")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not the same. None: it is not there, or not known."""

    kind: str
    name: str
    base: str | None
    new: str | None

    @property
    def text(self) -> str:
        """As people say it: `torch 2.12 -> 2.13`."""
        name = self.name if self.kind in ("distribution", "git", "variable") else _named(self)
        return f"{name} {_shown(self.base)} -> {_shown(self.new)}"


def differences(
    base: Sequence[SummaryRecord], new: Sequence[SummaryRecord]
) -> tuple[Difference, ...]:
    """All that differs, in a fixed order; a fact with several values in a set has them all."""
    left, right = _facts(base), _facts(new)
    unrecorded = _WHOLE if _knows_environment(base) != _knows_environment(new) else ()
    found = []
    for kind, name in sorted(left.keys() | right.keys(), key=_place):
        ours, theirs = left.get((kind, name), set()), right.get((kind, name), set())
        if ours != theirs and kind not in unrecorded:
            found.append(Difference(kind=kind, name=name, base=_joined(ours), new=_joined(theirs)))
    return (*(_unrecorded(kind, left, right) for kind in unrecorded), *found)


def _knows_environment(readings: Iterable[SummaryRecord]) -> bool:
    owns = (reading.document.get("perfrun") or {} for reading in readings)
    return any((own.get("environment") or {}).get("python") for own in owns)


def _unrecorded(kind: str, left: _Facts, right: _Facts) -> Difference:
    """One line for hundreds: one side has not recorded any of this."""
    counts = [sum(own == kind for own, _ in facts) for facts in (left, right)]
    base, new = (f"{count} recorded" if count else None for count in counts)
    return Difference(kind=kind, name=f"{kind}s", base=base, new=new)


def mixtures(readings: Sequence[SummaryRecord]) -> tuple[Fact, ...]:
    """Guarded facts that have several values within one set: it is no set of like trials."""
    facts = _facts(readings)
    return tuple(f for f in sorted(facts) if f[0] in GUARDED and len(facts[f] - {None}) > 1)


def forbids(difference: Difference) -> bool:
    """Whether sets that differ so are not to be compared unless that is asked for."""
    if difference.kind not in GUARDED:
        return False
    # PerfZero's summaries do not know of memory: no ground to refuse. No accelerator is one.
    unknown = difference.base is None or difference.new is None
    return not (unknown and difference.name in _MAY_BE_UNKNOWN)


def _facts(readings: Iterable[SummaryRecord]) -> _Facts:
    """Every fact with its values in a set; None stands for trials that do not have it."""
    each = [_read(reading) for reading in readings]
    names = {name for facts in each for name in facts}
    found: _Facts = {}
    for kind, name in names:
        concerned = (
            each
            if kind not in ("batch_size", "source")
            else [facts for facts in each if (kind, name) in facts]
        )  # those are facts of a method, not of the set
        found[kind, name] = {facts.get((kind, name)) for facts in concerned}
    return {fact: values for fact, values in found.items() if values != {None}}


def _read(reading: SummaryRecord) -> dict[Fact, str]:
    """The facts of a trial. Raises UsageError for a summary that somebody has changed."""
    try:
        return dict(_of(reading))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"  # a bare name would not tell whose fault it is
        raise UsageError(f"{reading.path}: is damaged: {why}; leave it out") from None


def _of(reading: SummaryRecord) -> Iterator[tuple[Fact, str]]:
    document = reading.document
    for kind, name, value in (
        *_hardware(document),
        *_software(document),
        *_asked(reading),
    ):
        if value is not None and value != "":
            yield (kind, name), str(value)


def _hardware(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    system = document.get("system_info") or {}
    machine = (document.get("perfrun") or {}).get("machine") or {}
    # Who names platforms tells machines apart by them, as the index does.
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
    """Memory to the nearest of 1, 2, 3, 4, 6, 8, 12, ... GiB: a kernel takes a varying part."""
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
        # Its version is among the distributions, where those are known.
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


def _asked(reading: SummaryRecord) -> Iterator[tuple[str, str, Any]]:
    document = reading.document
    info, own = document["benchmark_info"], document.get("perfrun") or {}
    yield "batch_size", reading.method, reading.batch_size
    yield "source", reading.method, own.get("module_sha256")
    for name, value in (info.get("flags") or {}).items():
        if name not in _NOT_COMPARED and value:
            yield "flag", f"--{name}", value
    yield "flag", "--", " ".join(own.get("benchmark_flags") or ())
    for name, value in {**(info.get("env_vars") or {}), **(own.get("env") or {})}.items():
        yield "variable", name, value


_ORDER = (
    *("hardware", "driver", "batch_size", "machine", "container", "python", "framework"),
    *("distribution", "git", "source", "flag", "variable", "perfrun"),
)


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
    # Hashes are long, and their beginnings tell them apart.
    words = [w[:12] if len(w) >= 40 and w.isalnum() else w for w in value.split(" ")]
    return " ".join(w[:19] if w.startswith("sha256:") else w for w in words)
