"""What the names of commits and branches say by themselves, before git is asked."""

from __future__ import annotations

import re

_FULL_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_full(git_hash: str) -> bool:
    """Say whether the hash names its commit by itself."""
    return _FULL_HASH.fullmatch(git_hash) is not None


def may_be_hash(text: str) -> bool:
    """Say whether it can stand for a commit's hash, whole or its beginning, as users write it."""
    return re.fullmatch(r"[0-9a-fA-F]{4,64}", text) is not None


def local_branch(ref: str) -> str | None:
    """Return the branch a checkout of `ref` is on; None for other refs than branches."""
    if ref.startswith("refs/heads/"):
        return ref.removeprefix("refs/heads/")
    return None if ref.startswith("refs/") else ref


def looks_hex(name: str) -> bool:
    """Say whether it may be a hash, or the beginning of one."""
    return re.fullmatch(r"[0-9a-f]{7,64}", name) is not None
