"""The page that `perfrun serve` serves of a real store, in a real browser, while results come."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from tests.forty_nights import DAY_S, METHODS, SLOW, results_of
from tests.integration.test_serve import PERFRUN, serving
from tests.summaries import summary, write


def test_an_opened_method_shows_all_that_a_report_shows_and_takes_up_new_results(
    browser: Any, tmp_path: Path
) -> None:
    begin_s = time.time() - 41 * DAY_S
    results_of(tmp_path, begin_s)
    said: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("response", lambda answer: said.append(answer.url) if answer.status >= 400 else None)
    with serving(f"--workspace={tmp_path}") as server:
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.locator(".live.on").wait_for()
        page.locator("#changes a", has_text="Cases.slow").first.click()
        page.locator("h3", has_text="Environment").wait_for()
        titles = page.locator("#method h3").all_inner_texts()
        assert titles == [
            "Changes",
            "History",
            "Paired trials",
            "Samples of the newest trial",
            "Over the time of the trial",
            "Phases and memory",
            "Environment",
        ]
        assert page.locator("figure", has_text="a against b").count() == 1
        assert page.locator("#coming").count() == 0
        # Metrics that came with the method, and the place of the change in each of them.
        assert "rate_per_s" in page.locator("#metric").inner_text()
        page.locator("#metric").select_option("rate_per_s")
        page.locator(".legend", has_text="worse").wait_for()
        page.locator("#metric").focus()

        late = summary(
            method=SLOW, wall_time=1.2, metrics={"rate_per_s": 0.5}, name="late",
            timestamp=begin_s + 40 * DAY_S, run_id="late",
        )  # fmt: skip
        write(tmp_path / "more", late)
        command = [*PERFRUN, "index", f"--workspace={tmp_path}", str(tmp_path / "more")]
        subprocess.run(command, check=True, capture_output=True)
        page.locator(".facts", has_text="0.5000").wait_for()
        assert page.locator("#metric").input_value() == "rate_per_s"
        assert page.evaluate("document.activeElement.id") == "metric"
        page.locator("h3", has_text="Environment").wait_for()
        assert page.locator("figure", has_text="a against b").count() == 1

        page.goto(f"http://127.0.0.1:{server.port}/#m={METHODS[2]}")
        page.locator(".failure", has_text="exit 3").wait_for()
        assert said == []
        page.close()
        server.end()
