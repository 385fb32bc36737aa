"""What a throw-away worker does with benchmark code: discover, check flags, upload."""

from __future__ import annotations

import importlib
import json
import traceback
from typing import Any, Callable, Dict, List

from perfrun.worker.discovery import class_methods, module_methods
from perfrun.worker.files import write_json
from perfrun.worker.lookup import authors_words
from perfrun.worker.modules import modules_in
from perfrun.worker.trial import parse_flags

Answer = Dict[str, Any]


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
            words = ""
            try:
                cls = getattr(module, target["class_name"])
            except AttributeError as error:
                cls, words = None, authors_words(vars(module), error)
            if not isinstance(cls, type):
                text = _no_class(module, target) + words
                return {"target": target, "error": text, "is_missing": True}
            return {"target": target, "methods": class_methods(cls, target.get("pattern"))}
        answer = {"target": target, "methods": module_methods(module)}
        if target.get("is_named"):  # a package that is installed, which only this side can see
            package = target["module"].split(".")
            folders = list(getattr(module, "__path__", ()))
            answer["inside"] = [name for path in folders for name in modules_in(path, package)]
        return answer
    except BaseException as error:  # noqa: BLE001 - importing code may raise anything
        return {"target": target, "error": "%s: %s" % (type(error).__name__, error)}


def _no_class(module: Any, target: Dict[str, Any]) -> str:
    there = sorted({item["class"] for item in module_methods(module)})
    hint = "; it has %s" % ", ".join(there) if there else ""
    return "%s has no class %s%s" % (target["module"], target["class_name"], hint)


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
    "discover": discover,
    "check_flags": check_flags,
    "upload": upload,
}
