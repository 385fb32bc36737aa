"""The environment of tests: no home directory, no network, and nothing that the user has set."""

from __future__ import annotations

import os
from collections.abc import Mapping

_PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# A file in the place of a folder: whatever is read there is missing, and nothing can be made.
SET = {
    **dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), os.devnull),
    "GIT_ALLOW_PROTOCOL": "file:git",
    "GIT_CONFIG_NOSYSTEM": "1",
    **dict.fromkeys(_PROXIES, "http://127.0.0.1:9"),  # nobody listens there
    "no_proxy": "127.0.0.1,localhost",
}
_DROPPED = ("PERFZERO_", "PERFRUN_PYTHON", "PERFRUN_IMAGE", "TEST_REPORT")


def dropped(environment: Mapping[str, str]) -> list[str]:
    """The variables of the user that no test gets."""
    return [name for name in environment if name.startswith(_DROPPED)]


def of_a_test(environment: Mapping[str, str]) -> dict[str, str]:
    """The same for what runs outside pytest, where the user's git has a configuration, too."""
    left = {n: value for n, value in environment.items() if n not in dropped(environment)}
    return {**left, **SET, "GIT_CONFIG_GLOBAL": os.devnull}
