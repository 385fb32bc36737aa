"""What a throw-away worker does besides running trials: describe, discover, check, upload."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import re
import sys
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple

from perfrun.worker.discovery import class_methods, module_methods
from perfrun.worker.files import write_json
from perfrun.worker.trial import parse_flags

Answer = Dict[str, Any]


def describe(order: Dict[str, Any]) -> int:
    """Answer with the interpreter and the distributions installed in its environment."""
    distributions, origins = installed_distributions()
    lines = ["%s==%s %s" % (n, v, origins.get(n, "")) for n, v in sorted(distributions.items())]
    answer = {
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
            "prefix": sys.prefix,
            "compiler": platform.python_compiler(),
        },
        "distributions": dict(sorted(distributions.items())),
        "distributions_sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        "direct_url_commits": origins,
    }
    write_json(order["answer"], answer)
    return 0


def installed_distributions() -> Tuple[Dict[str, str], Dict[str, str]]:
    """Return versions by name, and the commit of those that pip installed from a repository.

    Reads the names of the metadata folders instead of the metadata: a hundred times cheaper. The
    first on the path wins, as it does for the import. Source: the "Recording installed projects"
    and "direct_url.json" specifications of packaging.python.org.
    """
    versions: Dict[str, str] = {}
    commits: Dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = sorted(os.listdir(folder or "."))
        except OSError:
            continue
        for entry in entries:
            match = re.match(r"(?P<name>[^-]+)-(?P<version>[^-]+).*\.(?:dist|egg)-info$", entry)
            if not match:
                continue
            name = re.sub(r"[-_.]+", "-", match["name"]).lower()
            version = match["version"]
            if entry.endswith(".egg-info"):
                version = re.sub(r"\.egg$", "", version)
            if name in versions:
                continue
            versions[name] = version
            commit = _direct_commit(os.path.join(folder, entry, "direct_url.json"))
            if commit:
                commits[name] = commit
    return versions, commits


def _direct_commit(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8") as file:
            commit = json.load(file)["vcs_info"]["commit_id"]
        return str(commit)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def discover(order: Dict[str, Any]) -> int:
    """Answer, for each target, with its methods or with why they cannot be had.

    A target is a class (with or without a pattern) or a module. The answers are written one by
    one, so that a module which kills the process does not take the others' answers along.
    """
    with open(order["answer"], "a", encoding="utf-8") as file:
        for target in order["targets"]:
            file.write(json.dumps(_discover_one(target)) + "\n")
            file.flush()
    return 0


def _discover_one(target: Dict[str, Any]) -> Answer:
    try:
        module = importlib.import_module(target["module"])
        if target.get("class_name"):
            cls = getattr(module, target["class_name"])
            return {"target": target, "methods": class_methods(cls, target.get("pattern"))}
        return {"target": target, "methods": module_methods(module)}
    except BaseException as error:  # noqa: BLE001 - importing code may raise anything
        return {"target": target, "error": "%s: %s" % (type(error).__name__, error)}


def check_flags(order: Dict[str, Any]) -> int:
    """Parse the benchmark's flags against what its modules define; answer with what is wrong."""
    answer: Answer = {"error": None}
    for module in order["modules"]:
        try:
            importlib.import_module(module)
        except BaseException:  # noqa: BLE001 - its trial will say so, with the traceback
            answer["skipped"] = module
    try:
        parse_flags(order["benchmark_flags"])
    except ImportError:
        answer["error"] = "the environment under test has no absl-py, which parses these flags"
    except Exception as error:  # noqa: BLE001 - absl and flag parsers raise what they like
        answer["error"] = str(error)
    if answer.get("skipped") and answer["error"] and "Unknown" in answer["error"]:
        answer["error"] = None  # the flag may be that module's own
    write_json(order["answer"], answer)
    return 0


def upload(order: Dict[str, Any]) -> int:
    """Call the functions of `--result_upload_methods` with the summary; answer with failures."""
    with open(order["summary"], encoding="utf-8") as file:
        summary = json.load(file)
    results: List[Answer] = []
    for name in order["functions"]:
        module, _, function = name.rpartition(".")
        try:
            getattr(importlib.import_module(module), function)(summary)
            results.append({"method": name, "error": None})
        except BaseException as error:  # noqa: BLE001 - recorded, never fatal
            traceback.print_exc()
            results.append({"method": name, "error": "%s: %s" % (type(error).__name__, error)})
    write_json(order["answer"], results)
    return 0


SERVICES: Dict[str, Callable[[Dict[str, Any]], int]] = {
    "describe": describe,
    "discover": discover,
    "check_flags": check_flags,
    "upload": upload,
}
