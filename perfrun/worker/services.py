"""Services of a short-lived worker: discover methods, check flags, upload results, count.

They answer about the environment's allocator, too.
"""

from __future__ import annotations

import abc
import importlib
import inspect
import json
import re
import traceback
from typing import Any, Callable, Dict, List, Optional

from perfrun.worker import companion
from perfrun.worker.allocator import answer_about_allocator
from perfrun.worker.method import (
    active_environment,
    getattr_hint,
    is_not_installed,
    no_module,
    parse_flags,
)
from perfrun.worker.modules import modules_in
from perfrun.worker.named_method import is_absent, is_written, why_missing
from perfrun.worker.outcome_file import write_json

Answer = Dict[str, Any]

# Methods of unittest and of the base classes of benchmarks.
_NOT_METHODS = {"setUp", "tearDown", "setUpClass", "tearDownClass", "report_benchmark"}


def class_methods(cls: Any, pattern: Optional[str] = None) -> List[Dict[str, str]]:
    """Return the methods of `cls` that could be run, in alphabetical order, with their docs.

    A pattern keeps those whose name it matches from the start (`re.match`, as in PerfZero). The
    class is not instantiated. Private names, methods that take arguments, and methods of the
    framework's own base class are left out; PerfZero's `filter:.*` would run `__class__`.
    """
    found = []
    for name in dir(cls):
        if name.startswith("_") or name in _NOT_METHODS:
            continue
        if pattern is not None and not re.match(pattern, name):
            continue
        if _owner_is_framework(cls, name) or not _is_runnable(cls, name):
            continue
        found.append(
            {"class": cls.__name__, "method": name, "doc": _first_line(getattr(cls, name))}
        )
    return found


def module_methods(module: Any) -> List[Dict[str, str]]:
    """Return the methods of the benchmark classes that `module` itself defines.

    Classes that are only a base are left out: abstract ones, those derived from `abc.ABC` directly,
    and those that declare a `ClassVar` without a value.
    """
    found = []
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if cls.__module__ != module.__name__ or _is_only_a_base(cls):
            continue
        if callable(getattr(cls, "report_benchmark", None)):
            found += class_methods(cls)
    return found


def _is_only_a_base(cls: Any) -> bool:
    declared = {
        name: str(kind)
        for base in cls.__mro__
        for name, kind in getattr(base, "__annotations__", {}).items()
    }
    if inspect.isabstract(cls) or abc.ABC in cls.__bases__:
        return True
    return any("ClassVar" in kind and not hasattr(cls, name) for name, kind in declared.items())


def _owner_is_framework(cls: Any, name: str) -> bool:
    owner = next((base for base in cls.__mro__ if name in vars(base)), object)
    if owner.__module__.startswith("perfrun.adapters."):
        return False  # a class of somebody's suite
    return owner is object or owner.__module__.partition(".")[0] in (
        "perfrun",
        "tensorflow",
        "unittest",
        "absl",
    )


def _is_runnable(cls: Any, name: str) -> bool:
    """Return True when `instance.name` can be called without arguments."""
    raw = inspect.getattr_static(cls, name)
    function = getattr(cls, name)
    if inspect.isclass(function) or not callable(function):
        return False
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return True  # callable, with a signature that Python cannot tell
    if not isinstance(raw, (staticmethod, classmethod)) and parameters:
        parameters = parameters[1:]
    return all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters
    )


def _first_line(function: Any) -> str:
    lines = (inspect.getdoc(function) or "").strip().splitlines()
    return lines[0] if lines else ""


def discover(order: Dict[str, Any]) -> int:
    """Write, for each target, its methods or why they cannot be found.

    A target is a class (with or without a pattern), a module, or one method, for which the answer
    is only whether it is there. The answers are written one by
    one, so that a module which kills the process does not lose the answers before it.
    """
    with open(order["answer"], "a", encoding="utf-8") as file:
        for target in order["targets"]:
            file.write(json.dumps(_discover_one(target)) + "\n")
            file.flush()
    return 0


def _discover_one(target: Dict[str, Any]) -> Answer:
    if "method" in target and is_written(target):
        return {"target": target, "methods": []}
    try:
        module = importlib.import_module(target["module"])
        if "method" in target:
            text = why_missing(module, target["class_name"], target["method"])
            answer = {"error": text, "is_missing": True} if text else {"methods": []}
            return {"target": target, **answer}
        if target.get("class_name"):
            hint = ""
            try:
                cls = getattr(module, target["class_name"])
            except AttributeError as error:
                cls, hint = None, getattr_hint(vars(module), error)
            if not isinstance(cls, type):
                text = _no_class(module, target) + hint
                return {"target": target, "error": text, "is_missing": True}
            return {"target": target, "methods": class_methods(cls, target.get("pattern"))}
        answer = {"target": target, "methods": module_methods(module)}
        if target.get("is_named"):  # an installed package, which only the worker can see
            package = target["module"].split(".")
            folders = list(getattr(module, "__path__", ()))
            answer["inside"] = [name for path in folders for name in modules_in(path, package)]
        return answer
    except BaseException as error:  # noqa: BLE001 - importing code may raise anything
        if is_absent(error, target):
            return {"target": target, "error": no_module(error), "is_missing": True}
        hint = active_environment() if is_not_installed(error) else ""
        return {"target": target, "error": "%s: %s%s" % (type(error).__name__, error, hint)}


def _no_class(module: Any, target: Dict[str, Any]) -> str:
    there = sorted({item["class"] for item in module_methods(module)})
    hint = "; it has %s" % ", ".join(there) if there else ""
    return "%s has no class %s%s" % (target["module"], target["class_name"], hint)


def check_flags(order: Dict[str, Any]) -> int:
    """Parse the benchmark's flags against those that its modules define; write what is wrong.

    `others` are further lists of flags, as the settings of a sweep.
    """
    answer: Answer = {"error": None}
    for module in order["modules"]:
        try:
            importlib.import_module(module)
        except BaseException:  # noqa: BLE001 - its trial will say so, with the traceback
            answer["skipped"] = module
    try:
        for flags in [order["benchmark_flags"]] + order.get("others", []):
            parse_flags(flags)
    except ImportError:
        answer["is_missing"] = True
        answer["error"] = "the environment under test has no absl-py, which parses these flags"
    except Exception as error:  # noqa: BLE001 - absl and flag parsers raise what they like
        answer["error"] = str(error)
    if answer.get("skipped") and answer["error"] and "Unknown" in answer["error"]:
        answer["error"] = None  # the flag may be that module's own
    write_json(order["answer"], answer)
    return 0


def upload(order: Dict[str, Any]) -> int:
    """Call the functions of `--result_upload_methods` with the summary; write their failures."""
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
    "companion": companion.answer,
    "allocator": answer_about_allocator,
}
