"""The page in a real Chromium: what a reader sees and does, what a stranger's text cannot do."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import example_page
import pytest
from live_server import Server
from rendering import render

pytest.importorskip("jinja2")

Open = Callable[..., Any]
Keep = Callable[[Any, str], None]
WIDTHS = (390, 1280, 1920)  # a phone, a laptop, a large screen
DARK = "rgb(25, 29, 34)"
NIGHTS = 90


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return example_page.report(26, NIGHTS, now=time.time() - 7200)


@pytest.fixture(scope="module")
def file(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(data), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def context(browser: Any) -> Iterator[Any]:
    """What pages without wishes of their own share: a process, and so the time to start one."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def open_page(browser: Any, context: Any, file: Path) -> Iterator[Open]:
    """Open the page with a fragment; at the end it must have said, asked and run nothing."""
    said: list[str] = []
    asked: list[str] = []
    pages = []

    def opened(fragment: str = "", **options: Any) -> Any:
        own = {"viewport": {"width": 1280, "height": 800}, **options}
        page = browser.new_page(**own) if options else context.new_page()
        pages.append(page)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{file.as_uri()}{fragment}")
        return page

    yield opened
    broken = [page.evaluate("typeof window.broken") for page in pages]
    for page in pages:
        page.close()
    assert said == []
    assert {url.partition("#")[0] for url in asked if not url.startswith("data:")} == {
        file.as_uri()
    }
    assert set(broken) == {"undefined"}


def names(page: Any) -> list[str]:
    return page.locator("#methods-body .method-name").all_text_contents()


def opens(name: str, **state: str) -> str:
    return "#" + urllib.parse.urlencode({"m": name, **state})


def follow(page: Any, fragment: str) -> None:
    """Go to another state of the page and wait until it was taken up."""
    page.evaluate(
        """fragment => new Promise((done) => {
            addEventListener("hashchange", () => setTimeout(done), {once: true});
            location.hash = fragment;
        })""",
        fragment,
    )


def saved(page: Any, button: Any) -> tuple[str, bytes]:
    with page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_first_screen_tells_age_outcomes_and_what_got_worse_before_all_methods(
    open_page: Open, data: dict[str, Any]
) -> None:
    page = open_page()
    assert page.locator(".age").text_content() == "Newest trial 2 hours ago"
    worse = [change for change in data["changes"] if change["direction"] == "worse"]
    assert page.locator(".tile.worse .figure").text_content() == str(len(worse))
    first = page.locator(".change").first
    assert data["methods"][worse[0]["method"]]["name"] in first.text_content()
    assert worse[0]["text"] in first.text_content()
    tops = [page.locator(f"#{id_}").bounding_box()["y"] for id_ in ("age", "tiles", "changes")]
    assert tops == sorted(tops)
    assert first.bounding_box()["y"] < 800
    assert page.locator("#methods").bounding_box()["y"] > tops[-1]
    assert page.locator("#warning-list").is_visible()
    # All texts of a stranger are there, as text.
    assert example_page.HOSTILE[0] in page.locator("#warning-list").text_content()
    assert example_page.HOSTILE[1] in page.locator("#machines").text_content()
    assert set(names(page)) == {method["name"] for method in data["methods"]}
    first, second = page.locator("#fleet details").all()
    assert "36 of 40 shards done, about 2 min left" in first.locator("summary").text_content()
    assert example_page.HOSTILE[1] in first.locator("td", has_text="reason").text_content()
    assert not second.get_by_text("What failed, and why").is_visible()
    second.locator("summary").press("Enter")
    assert second.get_by_text("What failed, and why").is_visible()
    left_out = page.locator("#left-out").text_content()
    assert left_out.startswith("Left out to keep this page below 1 MB: 12 histories of derived")


def test_table_is_searched_filtered_sorted_and_saved(open_page: Open, data: dict[str, Any]) -> None:
    page = open_page()
    page.keyboard.press("/")
    wanted = data["methods"][20]["name"]
    page.keyboard.type(" ".join(wanted.upper().split(".")[:1:-1]))
    assert names(page) == [wanted]
    page.locator("#search").fill("")
    page.locator('[data-filter="failed"]').click()
    failed = sorted(m["name"] for m in data["methods"] if m["state"] != "passed")
    assert sorted(names(page)) == failed
    page.locator('[data-filter="all"]').click()
    page.locator('[data-sort="noise"]').click()
    noise = {method["name"]: method["noise"] for method in data["methods"]}
    shown = [noise[name] for name in names(page)]
    assert shown == sorted(shown, reverse=True)
    assert page.locator('[aria-sort="descending"]').text_content().startswith("Noise")
    # What the address says is what another reader sees.
    page.locator("#search").fill("bench-02")
    again = open_page(page.evaluate("location.hash"))
    assert names(again) == names(page)
    name, content = saved(again, again.locator("#csv"))
    assert name.endswith(".csv")
    rows = content.decode().split("\r\n")
    assert rows[0].startswith("method,environment")
    assert len(rows) == len(names(page)) + 2
    assert not any(row.startswith(("=", "+", "-", "@")) for row in rows)


def test_method_opens_and_its_history_is_read_zoomed_and_saved(
    open_page: Open, data: dict[str, Any]
) -> None:
    name = data["methods"][0]["name"]
    page = open_page()
    page.locator("#methods-body a", has_text=name.split(".", 1)[1]).first.click()
    assert page.locator("#method-title").text_content() == name
    assert not page.locator("#overview").is_visible()
    canvas = page.locator(".u-over")
    box = canvas.bounding_box()
    # A pointer at the last night: its value, its interval, its commit, its environment.
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 50)
    tip = page.locator(".tip").text_content()
    assert time.strftime("%Y-%m-%d", time.gmtime(data["newest"])) in tip
    assert " to " in tip
    assert example_page.HOSTILE[0] in tip
    assert "environment since" in tip
    assert "against the baseline" in tip
    # By keyboard the same is said to a screen reader.
    page.locator(".history").focus()
    page.keyboard.press("Home")
    said = page.locator("#announcement").text_content()
    first = time.gmtime(data["newest"] - (NIGHTS - 1) * example_page.NIGHT)
    assert time.strftime("%Y-%m-%d", first) in said
    # A range is chosen by drawing over it, and is in the address.
    box = canvas.bounding_box()  # it was scrolled to
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60, steps=4)
    page.mouse.up()
    fragment = urllib.parse.parse_qs(page.evaluate("location.hash").lstrip("#"))
    middle = time.gmtime(data["newest"] - (NIGHTS - 1) / 2 * example_page.NIGHT)
    assert abs(
        time.mktime(time.strptime(fragment["from"][0][:10], "%Y-%m-%d")) - time.mktime(middle)
    ) < 3 * example_page.NIGHT  # fmt: skip
    page.locator("#axis").click()
    shared = open_page(page.evaluate("location.hash"))
    assert shared.locator("#axis").get_attribute("aria-pressed") == "true"
    assert shared.locator("#range").text_content() == page.locator("#range").text_content()
    # The chart as a file of its own: no script, no reference, its colours inside.
    ending, content = saved(shared, shared.locator(".wide .save button").first)
    root = ET.fromstring(content.decode())
    assert ending.endswith(".svg")
    assert root.tag.endswith("svg")
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "rect", "line", "path", "text"}
    assert root.find(".//{*}path[@stroke]") is not None
    _, content = saved(shared, shared.locator(".wide .save button").nth(1))
    assert content.startswith(b"\x89PNG")
    page.keyboard.press("0")
    page.go_back()
    assert page.locator("#overview").is_visible()


def test_every_chart_of_a_method_has_its_words_and_its_table(
    open_page: Open, data: dict[str, Any]
) -> None:
    page = open_page(opens(data["methods"][0]["name"]))
    charts = page.locator("#method figure")
    assert charts.count() == 7  # history, pairs, samples, four timelines
    page.locator(".history").wait_for()
    for i in range(charts.count()):
        chart = charts.nth(i)
        words = chart.locator("[aria-label].chart, [aria-label].history").first
        assert len(words.get_attribute("aria-label")) > 20
        chart.locator("summary").click()
        chart.locator("tbody tr").nth(5).wait_for()
    # Only a link to a place beside the page is a link.
    assert page.locator("#method section a[rel]").all_text_contents() == ["profiles/e1/trace.json"]
    assert example_page.HOSTILE[0] in page.locator(".failure pre").text_content()


def test_hostile_names_open_as_any_other(open_page: Open) -> None:
    page = open_page()
    for name in example_page.HOSTILE:
        follow(page, opens(name))
        page.locator(".u-over").wait_for()
        assert page.locator("#method-title").text_content() == name
    follow(page, "#m=nobody&theme=%3Cb%3E&from=x&sort=__proto__&show=toString")
    assert page.locator("#unknown").is_visible()
    assert names(page)


def test_themes_follow_the_system_or_the_reader(open_page: Open) -> None:
    page = open_page(color_scheme="dark")
    panel = "getComputedStyle(document.querySelector('.tile')).backgroundColor"
    assert page.evaluate(panel) == DARK
    page.locator('#theme [data-theme="light"]').click()
    assert page.evaluate(panel) == "rgb(255, 255, 255)"
    assert "theme=light" in page.url
    assert open_page("#theme=dark").evaluate(panel) == DARK


def test_paper_gets_every_chart_as_a_drawing(open_page: Open, data: dict[str, Any]) -> None:
    page = open_page(opens(data["methods"][0]["name"]), color_scheme="dark")
    page.locator(".u-over").wait_for()
    assert base64.b64encode(page.pdf()[:5]) == b"JVBERi0="
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".on-paper svg").is_visible()
    assert not page.locator(".stage").is_visible()
    assert not page.locator("#theme").is_visible()
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator(".on-paper").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_page: Open, data: dict[str, Any], scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(color_scheme=scheme, bypass_csp=True)
    # Contrast is computed for each element, and a few rows hold all that a row can be.
    page.locator("#search").fill("load bench-01")
    # Of the two themes only the colours differ.
    rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else None
    results = [axe.run(page, options=rules)]
    follow(page, opens(data["methods"][0]["name"]))
    page.locator(".u-over").wait_for()
    results.append(axe.run(page, options=rules))
    assert [
        (found["id"], node["html"][:200])
        for result in results
        for found in result.response["violations"]
        if found["impact"] in {"serious", "critical"}
        for node in found["nodes"]
    ] == []


def test_phone_scrolls_in_one_direction(open_page: Open, data: dict[str, Any]) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == 390
    follow(page, opens(data["methods"][0]["name"]))
    page.locator(".chart-host").scroll_into_view_if_needed()
    page.locator(".u-over").wait_for()
    assert page.evaluate(wide) == 390


@pytest.mark.parametrize("width", WIDTHS)
def test_no_screen_scrolls_sideways_and_each_is_kept_as_a_picture(
    open_page: Open, keep_picture: Keep, data: dict[str, Any], width: int
) -> None:
    page = open_page(viewport={"width": width, "height": 900})
    beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(beyond) <= 0
    page.locator("#search").fill("bench-01")  # twenty rows are as good as all
    keep_picture(page, "report")
    follow(page, opens(data["methods"][0]["name"]))
    page.locator(".chart-host").first.scroll_into_view_if_needed()
    page.locator(".u-over").wait_for()
    assert page.evaluate(beyond) <= 0
    keep_picture(page, "report-method")
    # Charts are drawn for the screen: their texts are as large as they were meant, on a phone too.
    drawn = page.locator("#method figure svg.chart:visible")
    assert drawn.count() == 6  # pairs, samples, four timelines
    sizes = drawn.evaluate_all(
        "all => all.map((one) => one.clientWidth / one.viewBox.baseVal.width)"
    )
    assert min(sizes) > 0.9


def test_without_javascript_the_changes_and_methods_are_there(
    open_page: Open, data: dict[str, Any]
) -> None:
    page = open_page(java_script_enabled=False)
    text = page.locator("noscript").inner_text()
    assert data["changes"][0]["text"] in text
    assert example_page.HOSTILE[0] in text


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(example_page.report(12, 30, now=time.time() - 7200)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.events.put(None)
        server.shutdown()
        thread.join()


def test_page_shows_what_runs_and_what_is_new_and_leaves_the_reader_alone(
    browser: Any, server: Server, keep_picture: Keep
) -> None:
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"http://127.0.0.1:{server.server_port}/#q=bench-01")
    page.locator(".live.on").wait_for()
    page.locator("#search").focus()
    trial = {"state": "started", "method": "a.b.Model.step"}
    server.events.put(f"event: trial\ndata: {json.dumps(trial)}\n\n")
    page.locator("#live", has_text="Model.step runs").wait_for()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        keep_picture(page, "served")
    server.data["title"] = "After <b>one</b> more run"
    server.data["newest"] = time.time()
    server.events.put("event: index\ndata: {}\n\n")
    page.locator("#title", has_text="After <b>one</b> more run").wait_for()
    assert page.locator(".age").text_content() == "Newest trial just now"
    assert page.evaluate("document.activeElement.id") == "search"
    assert page.locator("#search").input_value() == "bench-01"
    server.events.put('event: store\ndata: {"state": "gone", "text": "the store is gone"}\n\n')
    page.locator(".live.off", has_text="the store is gone").wait_for()
    assert said == []
    page.close()
