"""A real Chromium, and pages of made-up data in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_HEIGHT = "document.documentElement.scrollHeight"
_DRAWN = """() => new Promise((done) =>
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"""
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"


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


@pytest.fixture(scope="session")
def keep_picture() -> Callable[[Any, str], None]:
    """Keep a page as a picture for people to look at; CI keeps the folder."""
    folder = Path(os.environ.get("PERFRUN_TEST_SCREENSHOTS") or SCREENSHOTS)
    folder.mkdir(parents=True, exist_ok=True)

    def keep(page: Any, name: str) -> None:
        size = page.viewport_size
        # What is drawn when it is scrolled to is drawn now.
        page.set_viewport_size({**size, "height": min(6000, page.evaluate(_HEIGHT))})
        page.evaluate(_DRAWN)
        page.screenshot(path=folder / f"{name}-{size['width']}.png", full_page=True)
        page.set_viewport_size(size)

    return keep
