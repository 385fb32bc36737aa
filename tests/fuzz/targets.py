"""The parsers that read what a stranger wrote, each with inputs to begin with.

A target is called with bytes. It may raise the errors that it names, and nothing else; it must end
within a second. `test_parsers.py` runs a sample in CI, `python -m tests.fuzz` as many as asked for.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from perfrun.errors import UsageError
from perfrun.exchange import asv, bmf, google_benchmark, pyperf, pytest_benchmark
from perfrun.exchange.foreign import ForeignError, Source
from perfrun.image import env_file, spec
from perfrun.nightly.suite_file import read_suite
from perfrun.options import command_line, containment, flags, parsers, plan, store_address
from perfrun.probes import amd, nvidia, oom, processor, sysfs
from perfrun.summary.record import BadSummary, parse_record
from perfrun.text import redact
from perfrun.untrusted import Refused, parse_json
from perfrun.worker import cgroups
from perfrun.worker.test_log import TestLogError, decode_entries, encode_entry
from perfrun.workspace import git

from . import output, words
from .target import Call, Target, folder, is_folder, text

TESTS = Path(__file__).resolve().parent.parent
FOREIGN = TESTS / "data" / "foreign"


def _of_text(*functions: Callable[[str], object]) -> Call:
    """Every function gets the text; the call fails with the last error when none accepts it."""

    def call(data: bytes) -> None:
        failures = []
        for function in functions:
            try:
                function(text(data))
            except UsageError as error:
                failures.append(error)
        if len(failures) == len(functions):
            raise failures[-1]

    return call


def _argv(data: bytes) -> None:
    # A folder is searched whole, however large it is: it is the user who names it.
    argv = [one for one in text(data).split("\n") if not is_folder(one.partition("::")[0])]
    with redirect_stdout(StringIO()), suppress(SystemExit):  # --help
        command_line.parse(argv)


def _record(data: bytes) -> None:
    record = parse_record(data, Path("summary.json"))
    assert all(map(math.isfinite, record.values.values()))
    json.dumps(record.extras, allow_nan=False).encode()
    assert record.primaries == tuple(n for n in record.metrics if n in record.primaries)


def _suite(data: bytes) -> None:
    path = folder("suite") / "suite.toml"
    path.write_bytes(data)
    read_suite(path)


def _foreign(read: Callable[[Source], Any]) -> Call:
    def call(data: bytes) -> None:
        read(Source(Path("result.json"), data, 1.0))

    return call


def _asv(data: bytes) -> None:
    # The result stands beside two files of asv's own, which say what its columns are.
    place = folder("asv") / "results"
    if not place.exists():
        shutil.copytree(FOREIGN / "asv", place)
    (result,) = (place / "host").glob("0c*.json")
    result.write_bytes(data)
    asv.read(Source(result, data, 1.0))


def _sysfs(files: tuple[str, ...], *read: Callable[[sysfs.Sysfs], object]) -> Call:
    def call(data: bytes) -> None:
        root = folder(read[0].__name__)
        for name in files:
            path = root / name.lstrip("/")
            try:
                path.write_bytes(data)
            except FileNotFoundError:
                path.parent.mkdir(parents=True)
                path.write_bytes(data)
        for function in read:
            function(sysfs.Sysfs(str(root)))

    return call


def _pressure(data: bytes) -> None:
    file = folder("pressure") / "cpu.pressure"
    file.write_bytes(data)
    some, full = cgroups.read_pressure(str(file))
    assert (some or 0) >= 0 <= (full or 0)


def _groups(data: bytes) -> None:
    groups, _, mounts = text(data).partition("\n\n")
    cgroups.locate(groups, mounts)


def _cpuinfo(data: bytes) -> None:
    found = processor.read_cpuinfo(text(data))
    processor.cpu_flags(found)
    if any(name == "model name" and value for name, value in found):
        processor.cpu_identity(found)  # without a name it starts other programs, for a second


def _kernel_log(data: bytes) -> None:
    found = re.match(oom._VICTIM, data)
    assert not found or int(found[1]) >= 0


def _redacted(data: bytes) -> None:
    redact(redact(text(data)))


def _env_file(data: bytes) -> None:
    env_file.split_block(text(data))
    env_file.merge_block(text(data), {"PERFRUN_IMAGE": "perfrun:torch"}, has_gpu=False)


@cache
def _summary() -> bytes:
    return (TESTS / "data" / "perfzero" / "ok.json").read_bytes()


def _entry() -> bytes:
    metrics: Any = [{"name": "top_1", "value": 0.7, "min_value": 0.5, "max_value": 0.9}]
    return encode_entry("a.B.c", 3, 0.5, 1.5, 2.0, {"batch_size": 8, "text": "word"}, metrics)


_SUITE = b"""
name = "nightly"
deadline = "6h"
[[repos]]
url = "https://host/models.git"
branch = "main"
[[environments]]
name = "here"
python = "python3"
[[methods]]
name = "benchmarks.python.interpreter.Interpreter.attribute_access"
precision = "1%"
canary = true
[output]
junit = "junit.xml"
"""
_GROUPS = (
    b"12:memory:/docker/1\n0::/system.slice\n\n"
    b"30 23 0:26 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
    b"31 23 0:27 /a\\040b /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)

TARGETS = (
    Target(
        name="command line",
        call=_argv,
        errors=(UsageError,),
        seeds=(
            b"--benchmark_methods=a.B.c\n--benchmark_num_trials=3\n--timeout=300",
            b"--git_repos=/a/b.git;main;abc1234\n--benchmark_methods=a.B.filter:x.*\n--\n--batch=3",
            b"--image=perfrun:torch\n--memory=2g\n--cpus=1.5\n--env=A=b\n--workspace=w",
        ),
    ),
    Target(
        name="repositories and data",
        call=_of_text(plan.parse_repos, lambda t: plan.parse_data(t, "--data_downloads")),
        errors=(UsageError,),
        seeds=(
            b"https://host/a.git;main;0123456789abcdef,git@host:b.git;;",
            b"https://host/data.tar.gz;data",
        ),
    ),
    Target(
        name="methods",
        call=_of_text(
            plan.parse_selector,
            plan.parse_python_path,
            plan.parse_upload_methods,
            plan.parse_constructor_args,
        ),
        errors=(UsageError,),
        seeds=(b"a.b.C.filter:x.*y", b"a.B.c", b'{"batch_size": 8, "name": [1, 2.5, null]}'),
    ),
    Target(
        name="numbers and lists of flags",
        call=_of_text(
            lambda t: parsers.parse_whole(t, "--flag"),
            lambda t: parsers.parse_share(t, "--flag"),
            lambda t: parsers.parse_duration(t, "--flag"),
            lambda t: parsers.parse_shell_words(t, "--flag"),
            lambda t: parsers.parse_variables([t]),
            lambda t: parsers.parse_clone(t, "--flag"),
            lambda t: parsers.parse_regex(t, "--flag"),
            lambda t: containment.parse_size("--memory", t),
            parsers.parse_profiler_windows,
            parsers.parse_profiles,
            parsers.local_branch,
            flags.complete_prefix,
        ),
        errors=(UsageError,),
        seeds=(b"90s", b"5%", b"1.5", b"2g", b"a 'b c' d", b"A=b", b"1:5,10:15", b"lines"),
    ),
    Target(
        name="store's address",
        call=_of_text(lambda t: store_address.parse_address(t, Path("workspace"))),
        errors=(UsageError,),
        seeds=(b"postgresql+psycopg://u:p%40s@host:5432/db", b"sqlite:////tmp/x", b"index.db"),
    ),
    Target(name="suite", call=_suite, errors=(UsageError,), seeds=(_SUITE,)),
    Target(name="test_log", call=decode_entries, errors=(TestLogError,), seeds=(_entry(),)),
    Target(
        name="JSON of a trial",
        call=parse_json,
        errors=(Refused,),
        seeds=(b'{"phase": "method", "notes": ["a"], "error": null, "x": [1, -2.5e3, true]}',),
    ),
    Target(name="summary", call=_record, errors=(BadSummary,), seeds=(_summary(),)),
    Target(
        name="asv",
        call=_asv,
        errors=(ForeignError,),
        seeds=tuple(p.read_bytes() for p in sorted((FOREIGN / "asv" / "host").glob("0c*"))),
    ),
    *(
        Target(
            name=name,
            call=_foreign(read),
            errors=(ForeignError,),
            seeds=((FOREIGN / file).read_bytes(),),
        )
        for name, read, file in (
            ("BMF", bmf.read, "bmf.json"),
            ("Google Benchmark", google_benchmark.read, "google-benchmark.json"),
            ("pyperf", pyperf.read, "pyperf.json"),
            ("pytest-benchmark", pytest_benchmark.read, "pytest-benchmark.json"),
        )
    ),
    Target(name="cgroup", call=_groups, seeds=(_GROUPS,)),
    Target(
        name="pressure",
        call=_pressure,
        seeds=(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=7\n",),
    ),
    Target(
        name="/proc/cpuinfo",
        call=_cpuinfo,
        seeds=(b"processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu avx2\ncpu MHz\t\t: 2400.1\n",),
    ),
    Target(
        name="/proc and /sys",
        call=_sysfs(
            (
                "/proc/stat",
                "/proc/meminfo",
                "/proc/loadavg",
                "/proc/vmstat",
                "/sys/devices/system/cpu/smt/active",
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
                "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
                "/sys/devices/system/cpu/cpu0/topology/core_id",
                "/sys/devices/system/cpu/cpu0/cache/index0/size",
                "/sys/devices/system/cpu/cpu0/cache/index0/level",
                "/sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list",
                "/sys/devices/system/cpu/intel_pstate/no_turbo",
            ),
            sysfs.cpu_times,
            sysfs.load_1min,
            sysfs.read_meminfo,
            sysfs.governors,
            sysfs.top_frequencies_khz,
            sysfs.frequency_khz,
            sysfs.smt_active,
            sysfs.core_count,
            sysfs.turbo_active,
            processor.cpu_caches,
        ),
        seeds=(
            b"cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nprocs_running 2\n",
            b"MemTotal:       1024 kB\nMemAvailable:    512 kB\nSwapTotal: 0 kB\n",
            b"0.50 0.40 0.30 1/100 1234\n",
            b"32K",
        ),
    ),
    Target(name="kernel log", call=_kernel_log, seeds=(b"6,1,2,-;Killed process 123 (python)",)),
    Target(
        name="text of git",
        call=_of_text(git.cause_line, parsers.looks_hex, parsers.may_be_hash),
        seeds=(b"fatal: repository 'https://u:p@host/x' not found\nhint: what", b"error: \xff"),
    ),
    Target(
        name="redaction",
        call=_redacted,
        seeds=(
            b"https://user:pass@host/x?token=abc&b=c ssh://git@host/y postgresql://u:p@h/db",
            b"GET /?key=1;sig=2#token=3",
        ),
    ),
    Target(
        name="image's flags",
        call=_of_text(
            spec.parse_apt_packages,
            spec.parse_version,
            spec.parse_python_version,
            spec.parse_build_arg,
            lambda t: spec.parse_image_name("--image", t, True),
            lambda t: spec.parse_line("--flag", t),
            lambda t: spec.parse_list("--flag", t),
        ),
        errors=(UsageError,),
        seeds=(
            b"libgl1,libjpeg62-turbo=1:2.1",
            b"2.13.0",
            b"3.11",
            b"A=b",
            b"host:5000/a/b:c@sha256:0",
        ),
    ),
    Target(name=".env", call=_env_file, seeds=(b"A=b\n# perfrun\nX=1\n# end\n",)),
    Target(
        name="AMD's and NVIDIA's names",
        call=_of_text(lambda t: nvidia.main_model(tuple(t.split("\n")))),
        seeds=(b"NVIDIA H100\nNVIDIA H100\nTesla",),
    ),
    Target(
        name="/sys of AMD",
        call=_sysfs(
            tuple(
                f"/sys/class/drm/card0/device/{name}"
                for name in (
                    "vendor",
                    "device",
                    "mem_info_vram_total",
                    "mem_info_vram_used",
                    "gpu_busy_percent",
                    "unique_id",
                    "uevent",
                    "product_name",
                )
            ),
            amd.amd_accelerators,
        ),
        seeds=(b"0x1002", b"17163091968", b"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0"),
    ),
    *words.TARGETS,
    *output.TARGETS,
)
