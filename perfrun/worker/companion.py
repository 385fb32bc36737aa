"""The companion of a trial: a process that counts and measures what the trial itself must not.

A trial's memory is the benchmark's. So a benchmark that wants its arithmetic held against its
device's leaves a request in the trial's private folder. When the trial has ended, and its memory
has been read, the harness starts a companion in the same environment, which answers it.

A request is `companion_<n>.json`: a function of a module, the arguments of its call, what the peak
depends on, and the report that the figures belong to. The function is called as
`function(arguments, wanted, work, rate)` and returns a dict with a key for each name of `wanted`:

* `work`: `flops_per_example`, `counted_by`, `why_unknown`;
* `peak`: `flops_per_second`, `measured_by`, `by_kind`, `why_unknown`.

`work` is what is known of the work already, or None; `rate` is the trial's examples per second.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import sysconfig
import traceback
from typing import Any, Dict, List

from perfrun.worker.outcome_file import REQUEST, write_json

MOST_REQUESTS = 1000  # of a trial
MOST_BYTES = 64 * 1024  # of a request


def write_request(folder: str, request: Dict[str, Any]) -> None:
    """Write a request under the first free number. Raises TypeError for what JSON cannot hold."""
    text = json.dumps(request)
    if len(text) > MOST_BYTES:
        raise ValueError(
            "the request to the companion has %d bytes, at most %d" % (len(text), MOST_BYTES)
        )
    for number in range(1, MOST_REQUESTS + 1):
        try:
            with open(os.path.join(folder, "%s%d.json" % (REQUEST, number)), "x") as file:
                file.write(text)
            return
        except FileExistsError:
            continue


def answer(order: Dict[str, Any]) -> int:
    """Carry out the harness's order: call the function; write its answer, or what went wrong."""
    found: Dict[str, Any] = {}
    try:
        function = getattr(importlib.import_module(order["module"]), order["function"])
        given = (order["arguments"], order["wanted"], order["work"], order["rate"])
        found = dict(function(*given))
    except BaseException as error:  # noqa: BLE001 - a framework may raise anything
        traceback.print_exc()
        line = " ".join(str(error).split())[:300]
        found = {"error": "%s: %s" % (type(error).__name__, line)}
    found["files"] = files_of_modules()
    write_json(order["answer"], found)
    return 0


def files_of_modules() -> List[str]:
    """Return the files of all loaded modules that are not installed: when one changes, so may this.

    Installed packages are told by the environment's list of distributions.
    """
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = tuple(
        os.path.realpath(path) + os.sep for path in map(sysconfig.get_path, kinds) if path
    )
    found = set()
    for module in list(sys.modules.values()):
        path = getattr(module, "__dict__", {}).get("__file__")  # wakes no lazy module
        if isinstance(path, str) and not os.path.realpath(path).startswith(installed):
            found.add(os.path.abspath(path))
    return sorted(found)
