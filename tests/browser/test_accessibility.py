"""Accessibility of each page (WCAG 2.2 AA), by axe-core and by keyboard, on screens of all widths."""

import os
import re
from collections import ChainMap
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.chromium import READY, Tab, expect, find_module
from tests.browser.conftest import NewTab
from tests.browser.test_jobs import FINISHED
from tests.gateway.command import Served
from tests.goldens import compare

LIGHT = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
DARK = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
"""Options of axe-core for the dark scheme: only contrast is checked, because the schemes differ only in their
colors."""
PAGES = (
    "agents",
    "agents/echo",
    "agents/question/try?thread={thread}",
    "agents/echo/connect",
    "threads",
    "threads/{thread}",
    "runs",
    "runs/{run}",
    "runs/{run}?view=seen&p=acp",
    "runs/{run}?view=wire",
    "compare?a={run}&b={other}",
    "request?agent=echo",
    "checks",
    "checks/{check}",
    "across",
    "across/{across}",
    "bench",
    "bench/{bench}",
    "health",
    "settings",
    "key",
    "api",
)
"""Each page of the console, in a state with content."""
JOBS: Mapping[str, dict[str, Any]] = {
    "check": {"protocol": "acp"},
    "across": {"options": {"only": ["plain"]}},
    "bench": {"options": {"task": ["says-it-back"]}},
}
"""Orders for one small job of each kind."""
ROWS = {"settings": "console", "api": "/acp"}
"""Text for the filter of a page, by page. Such a page has about 200 rows of the same kind, for which axe-core takes 20
seconds."""
PICTURES = os.environ.get("BABELGATE_SCREENSHOTS", "")
"""Folder for a screenshot of each page in each scheme, or an empty text."""
NARROW = {"width": 320, "height": 640}


@pytest.fixture(scope="module")
def content(gateway: Served) -> dict[str, str]:
    """Ids of a thread that asks, and of two runs with all kinds of events."""
    ids: dict[str, str] = {}
    for name, agent, text in (
        ("run", "work", "alpha beta"),
        ("other", "work", "gamma"),
        ("asks", "question", "object"),
    ):
        body = {"assistant_id": agent, "input": text}
        run = httpx.post(f"{gateway.url}/v1/runs", json=body, timeout=30).json()
        ids |= {name: run["run_id"], "thread": run["thread_id"]}
    return ids


class Jobs(dict[str, str]):
    """Ids of jobs by kind. Each is started when it is first used."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = f"{url}/console/api/v1/jobs"

    def __missing__(self, kind: str) -> str:
        order = {"kind": kind, "agents": ["echo"], **JOBS[kind]}
        self[kind] = httpx.post(self._url, json=order, timeout=30).json()["job"]
        return self[kind]

    def remove(self) -> None:
        """Cancel the jobs, and remove them, so that other tests see lists without them."""
        for job_id in self.values():
            status = ""
            while status != "removed":
                response = httpx.request("DELETE", f"{self._url}/{job_id}", json={}, timeout=30)
                status = response.raise_for_status().json()["status"]


@pytest.fixture
def ids(gateway: Served, content: dict[str, str]) -> Generator[Mapping[str, str]]:
    """Ids of the content, and of jobs."""
    jobs = Jobs(gateway.url)
    yield ChainMap(content, jobs)
    jobs.remove()


def violations_of(tab: Tab, options: dict[str, Any]) -> list[str]:
    """Return what axe-core finds on the page, one line for each element."""
    results: dict[str, Any] = (
        find_module("axe_playwright_python.sync_playwright").Axe().run(tab.page, options=options).response
    )
    return [
        f"{each['id']} {node['target'][0]}: {node['html'][:160]}"
        for each in results["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_page_meets_wcag_in_both_color_schemes(new_tab: NewTab, ids: Mapping[str, str], page: str) -> None:
    tab = new_tab(color_scheme="light", reduced_motion="reduce")
    tab.open(page.format_map(ids))
    if page.startswith(("checks/", "across/", "bench/")):
        expect(tab.button("Run again")).to_be_visible(timeout=FINISHED)
    settle(tab)
    if page in ROWS:
        tab.field("Filter").fill(ROWS[page])
    found = {"light": violations_of(tab, LIGHT)}
    tab.page.emulate_media(color_scheme="dark")
    found["dark"] = violations_of(tab, DARK)
    assert found == {"light": [], "dark": []}
    assert tab.page.locator("h1").count() == 1
    assert tab.page.title().endswith("Babelgate")
    for scheme in ("dark", "light") if PICTURES else ():
        tab.page.emulate_media(color_scheme=scheme)
        tab.save_picture(Path(PICTURES) / f"{re.sub('[^a-z]+', '-', page)}-{scheme}.png")
    tab.page.set_viewport_size(NARROW)
    width = tab.page.evaluate("() => document.documentElement.scrollWidth")
    assert width <= NARROW["width"], f"the page is {width} pixels wide on a screen of {NARROW['width']}"


def settle(tab: Tab) -> None:
    """Wait until nothing on the page is loading any more."""
    expect(tab.page.locator("main")).to_have_attribute("data-status", READY)
    expect(tab.page.locator(".loading, [data-live=connecting]")).to_have_count(0)
    expect(tab.page.get_by_text(re.compile("^(loading|reading the stream)…$"))).to_have_count(0)


def test_a_failure_shows_the_path_of_a_screenshot(tab: Tab, request: pytest.FixtureRequest) -> None:
    tab.open("agents")

    def fail() -> None:
        raise AssertionError("the page is wrong")

    call = pytest.CallInfo[None].from_call(fail, "call")
    report = request.node.ihook.pytest_runtest_makereport(item=request.node, call=call)
    path = re.search(r"screenshot of \S+/console/#/agents: (\S+\.png)", report.longreprtext)
    assert path is not None, report.longreprtext
    assert Path(path[1]).read_bytes().startswith(b"\x89PNG")


def test_question_is_answered_by_keyboard_alone(tab: Tab) -> None:
    page, keyboard = tab.page, tab.page.keyboard
    tab.open("agents")
    keyboard.press("/")
    keyboard.type("question")
    expect(page.locator("tbody tr")).to_have_count(1)
    link = page.get_by_role("link", name="Try question")
    for _ in range(10):
        keyboard.press("Tab")
        if link.evaluate("node => node === document.activeElement"):
            break
    keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    for _ in range(20):
        keyboard.press("Tab")
        if tab.message.evaluate("node => node === document.activeElement"):
            break
    keyboard.type("choice")
    keyboard.press("Control+Enter")
    radio = page.locator("[data-answered=no]").get_by_label("red")
    expect(radio).to_be_visible()
    for _ in range(30):
        keyboard.press("Shift+Tab")
        if page.locator("[data-answered=no]").evaluate("node => node.contains(document.activeElement)"):
            break
    while not page.evaluate("() => document.activeElement.type === 'radio'"):
        keyboard.press("Shift+Tab")
    keyboard.press("Space")
    keyboard.press("Control+Enter")
    tab.see(re.compile("Answer: "))
    covered = page.evaluate(COVERED)
    assert not covered, covered


COVERED = """() => {
    const box = document.activeElement.getBoundingClientRect();
    const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return top && !document.activeElement.contains(top) && !top.contains(document.activeElement) ? top.outerHTML : "";
}"""
"""Script that returns what covers the element with the focus (WCAG 2.4.11), or an empty text."""


@pytest.mark.parametrize("page", ["agents/{agent}/try", "bench", "key"])
def test_page_reads_as_its_golden(tab: Tab, page: str, accept: bool) -> None:
    tab.open(page.format(agent="echo"))
    settle(tab)
    text: str = tab.page.locator("main").aria_snapshot()
    steady = re.sub(r"[0-9a-f]{8,}|\d+(?:\.\d+)?", "N", text) + "\n"
    name = page.replace("/", "-").format(agent="agent")
    compare(Path(__file__).parent / "golden" / f"{name}.txt", steady, accept)
