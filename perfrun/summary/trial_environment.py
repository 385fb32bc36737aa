"""Take from a summary all that may explain a change of its figures: versions, commits, flags."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from perfrun.summary.series_identity import objects, section, text

_HOST_NAME = re.compile(r'"hostname": "[^"]*"')
_UNRECORDED_EDITS = '"diff_sha256": null, "dirty": true'
_ALL_CODE_IN_CHECKOUTS = '"folders_without_commit": []'
# Flags of a run that change what is measured and are recorded nowhere else in a context.
_FLAGS = """
    python_path data_downloads gcs_downloads root_data_dir benchmark_class_type trial_network
    cpuset memory shm_size gpus pids_limit profiler_enabled_time debug
"""
_BATCH_FLAG = re.compile(r"-{1,2}(\w*batch_size)(?:=(.*))?", re.DOTALL)


def checkouts(document: Mapping[str, Any], perfzero_key: str, own_key: str) -> dict[str, str]:
    """Map the folder of each checkout to one fact about it."""
    info = section(section(document, "benchmark_info"), "site_package_info")
    found = {text(name): text(section(info, name).get(perfzero_key)) for name in info}
    for checkout in objects(section(document, "perfrun").get("git")):
        found[text(checkout.get("directory"))] = text(checkout.get(own_key))
    return {name: fact for name, fact in found.items() if name and fact}


def context(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return versions, image, machine, flags and code, as the index keeps them.

    The trials of a run share them, so they are stored once for all.
    """
    own, info = section(document, "perfrun"), section(document, "benchmark_info")
    container, environment = section(own, "container"), section(own, "environment")
    flags, git = section(info, "flags"), _git(document)
    folders = [item.strip() for item in text(flags.get("python_path")).split(",")]
    return {
        "python": section(environment, "python"),
        "distributions": section(environment, "distributions"),
        "direct_url_commits": section(environment, "direct_url_commits"),
        "framework": section(document, "ml_framework_info"),
        "image": {
            key: container[key] for key in ("image", "image_id", "repo_digests") if key in container
        },
        "limits": section(container, "limits"),
        "engine": {
            key: container[key]
            for key in ("engine_version", "rootless", "storage_driver", "network")
            if key in container
        },
        "setup_info": section(document, "setup_info"),
        "system": section(document, "system_info"),
        "machine": {k: v for k, v in section(own, "machine").items() if k != "at_start"},
        "benchmark_flags": own.get("benchmark_flags") or [],
        "constructor_args": flags.get("perfzero_constructor_args") or "",
        "flags": {name: flags[name] for name in _FLAGS.split() if flags.get(name)},
        # Of `--python_path`: no commit says what such a folder holds.
        "folders_without_commit": [
            item for item in folders if item and item.partition("/")[0] not in git
        ],
        "env_vars": {**section(info, "env_vars"), **section(own, "env")},
        "harness": {
            "name": info.get("harness_name"),
            "version": own.get("version"),
            **section(info, "harness_info"),
        },
        "git": git,
        "module_sha256": own.get("module_sha256"),
        "allocator": section(own, "allocator"),
    }


def _git(document: Mapping[str, Any]) -> Mapping[str, Any]:
    found = objects(section(document, "perfrun").get("git"))
    if not found:
        return section(section(document, "benchmark_info"), "site_package_info")
    keys = ("url", "branch", "git_hash", "dirty", "diff_sha256")
    return {text(one.get("directory")): {key: one.get(key) for key in keys} for one in found}


def document_of(context: Mapping[str, Any], commits: Mapping[str, str]) -> dict[str, Any]:
    """Make from a context the part of a summary that `perfrun.compare.differences` reads."""
    image = {**context["image"], **context["engine"], "limits": context["limits"]}
    names = ("python", "distributions", "direct_url_commits")
    return {
        "benchmark_info": {
            "env_vars": context["env_vars"],
            "flags": {"perfzero_constructor_args": context["constructor_args"]},
            "site_package_info": {name: {"hash": commit} for name, commit in commits.items()},
        },
        "ml_framework_info": context["framework"],
        "system_info": context["system"],
        "perfrun": {
            "version": context["harness"].get("version"),
            "benchmark_flags": context["benchmark_flags"],
            "environment": {name: context[name] for name in names},
            "container": image if context["image"] else None,
            "machine": context["machine"],
            "module_sha256": context["module_sha256"],
            "allocator": context.get("allocator", {}),  # an index of an older perfrun has none
            "git": [
                {"directory": name, "diff_sha256": one.get("diff_sha256")}
                for name, one in context["git"].items()
            ],
        },
    }


def digest_of(document: str, commits: str) -> str:
    """Return the digest of a context and its commits, both as JSON; '' when unknown.

    Host names are left out: containers draw theirs anew. Not known is the code of trials without
    commit and image, of local edits that were not recorded, of folders of `--python_path` that are
    no checkouts, and of summaries without packages.
    """
    is_known = ('"image_id": "' in document or commits != "{}") and '"python": {"' in document
    if not is_known or _UNRECORDED_EDITS in document or _ALL_CODE_IN_CHECKOUTS not in document:
        return ""
    same = f"{_HOST_NAME.sub('', document)}{commits}"
    return hashlib.blake2b(same.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def batch_size_of(document: Mapping[str, Any]) -> str | None:
    """Return the batch size by the first of flags, constructor arguments, report, series."""
    own, info = section(document, "perfrun"), section(document, "benchmark_info")
    flags = [text(word) for word in own.get("benchmark_flags") or ()]
    for at, word in enumerate(flags):
        found = _BATCH_FLAG.fullmatch(word)
        if found:
            value = found[2] if found[2] is not None else "".join(flags[at + 1 : at + 2])
            return f"{found[1]}={value}"
    for name, value in _arguments(info).items():
        if name.endswith("batch_size"):
            return f"{name}={value}"
    result = section(document, "benchmark_result")
    for item in (*objects(result.get("extras")), *objects(result.get("metrics"))):
        if item.get("name") == "batch_size":
            return f"batch_size={item.get('value')}"
    sizes = [one.get("items_per_step") for one in objects(own.get("series"))]
    return f"items_per_step={','.join(map(str, sizes))}" if any(sizes) else None


def _arguments(info: Mapping[str, Any]) -> Mapping[str, Any]:
    given = section(info, "flags").get("perfzero_constructor_args")
    try:
        arguments = json.loads(given) if isinstance(given, str) and given else {}
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}
