"""SHA-256 of small data without `hashlib`, which loads OpenSSL: that takes 5 ms of every run."""

from __future__ import annotations

from typing import Any

_sha256: Any
try:  # the standard library's `random` does the same
    from _sha2 import sha256 as _sha256  # type: ignore[import-not-found,no-redef,unused-ignore]  # 3.12
except ImportError:
    try:
        from _sha256 import sha256 as _sha256  # type: ignore[import-not-found,no-redef,unused-ignore]
    except ImportError:
        from hashlib import sha256 as _sha256


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal digits."""
    return str(_sha256(data).hexdigest())
