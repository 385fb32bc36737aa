"""A real Chromium, and pages of made-up data in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and "browser" in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker(pytest.mark.browser)


def unable(why: str) -> None:
    if os.environ.get("PERFRUN_REQUIRE_BROWSER") == "1":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests of a module; the loop that drives it ends with it."""
    program = os.environ.get("PERFRUN_TEST_CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if program is None:
        unable("no Chromium here (PERFRUN_TEST_CHROMIUM names one)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        unable(f"playwright cannot be imported: {error}")
    with sync_playwright() as playwright:
        arguments = ["--disable-gpu", "--renderer-process-limit=1"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # root cannot make the browser's own sandbox
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
