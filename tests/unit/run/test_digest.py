"""Digests of small things are those of hashlib."""

from __future__ import annotations

import hashlib

import pytest

from perfrun.run.digest import sha256_of


@pytest.mark.parametrize("data", [b"", b"a", bytes(range(256)) * 5000])
def test_a_digest_is_that_of_hashlib(data: bytes) -> None:
    assert sha256_of(data) == hashlib.sha256(data).hexdigest()
