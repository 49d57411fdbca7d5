"""Streams of the console: resumed without a gap, bounded in number, and fast with many events."""

import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.chromium import Tab, expect
from tests.browser.conftest import NewTab, served_agents
from tests.gateway.command import Served

WORDS = " ".join(f"w{number}" for number in range(40))
STREAM = re.compile(r"/v1/runs/[^/]+/stream$|/changes(\?|$)")
LOST = "ERR_(CONNECTION|SOCKET|EMPTY|INCOMPLETE|CONTENT_LENGTH)_"
"""Errors of Chromium when the gateway is killed."""


def test_first_load_is_small_and_the_second_is_cached(tab: Tab) -> None:
    tab.open("agents")
    expect(tab.page.locator("tbody tr").first).to_be_visible()
    assert len(tab.files) <= 45
    assert sum(tab.files.values()) <= 60_000
    second = Tab(tab.page.context.new_page(), tab.url)
    second.open("agents")
    sizes = second.page.evaluate(
        "() => performance.getEntriesByType('resource').filter(({ name }) => !name.includes('/api/'))"
        ".map(({ transferSize }) => transferSize)"
    )
    assert sizes and sum(sizes) == 0, "files that never change were sent again"
    second.check()


def start_halting(tab: Tab, gate: Path) -> None:
    """Start the agent that stops in the middle, and wait until it has."""
    tab.open("agents/halting/try")
    tab.message.fill(str(gate))
    tab.button("Send").click()
    tab.see(re.compile("w19"))


def see_whole_answer(tab: Tab) -> None:
    expect(tab.page.locator("[data-run-status=success]")).to_have_count(1)
    expect(tab.page.locator("[data-who=agent] .row-content")).to_have_text(WORDS)


def test_page_reloaded_during_a_stream_shows_all_of_it(tab: Tab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    start_halting(tab, gate)
    tab.page.reload()
    tab.see(re.compile("w19"))
    gate.touch()
    see_whole_answer(tab)


def test_stream_continues_when_a_killed_gateway_returns(new_tab: NewTab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with served_agents(tmp_path) as first:
        tab = new_tab(first.url)
        tab.expect_problem(LOST)
        start_halting(tab, gate)
        first.stop(signal.SIGKILL)
        expect(tab.page.locator("main")).to_have_attribute("data-status", "reconnecting")
        tab.see(re.compile("w19"))
    with served_agents(tmp_path, "--port", first.url.rpartition(":")[2]):
        gate.touch()
        see_whole_answer(tab)


def open_streams(tab: Tab) -> list[str]:
    """Return a list with the URLs of the open streams of a tab's page. The list changes when a stream begins or
    ends."""
    streams: list[str] = []

    def begin(request: Any) -> None:
        if STREAM.search(request.url):
            streams.append(request.url)

    def end(request: Any) -> None:
        if request.url in streams:
            streams.remove(request.url)

    tab.page.on("request", begin)
    tab.page.on("requestfailed", end)
    tab.page.on("requestfinished", end)
    return streams


def test_six_tabs_leave_connections_for_requests(new_tab: NewTab, tmp_path: Path) -> None:
    # A browser opens six connections to one host. A tab has one stream, and the tab used last keeps its own.
    gate = tmp_path / "gate"
    first = new_tab()
    tabs = [first, *(Tab(first.page.context.new_page(), first.url) for _ in range(5))]
    streams = [open_streams(tab) for tab in tabs]
    start_halting(first, gate)
    for tab, route in zip(tabs[1:], ("agents", "threads", "runs", "agents/echo", "agents"), strict=True):
        tab.open(route)
        expect(tab.page.locator("[data-live=live]").first).to_be_visible()
    assert all(len(each) <= 1 for each in streams), streams
    assert sum(map(len, streams)) <= 4, streams
    assert streams[-1], "the newest tab has no stream"
    first.page.bring_to_front()
    first.message.click()
    gate.touch()
    see_whole_answer(first)
    for tab in tabs[1:]:
        tab.check()


def test_hidden_tab_closes_its_stream_and_resumes(tab: Tab) -> None:
    page = tab.page
    page.clock.install()
    tab.open("agents")
    expect(page.locator("[data-live]")).to_have_attribute("data-live", "live")
    hide = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    page.clock.run_for(31_000)
    expect(page.locator("[data-live]")).to_have_attribute("data-live", "paused")
    page.evaluate(hide, False)
    expect(page.locator("[data-live]")).to_have_attribute("data-live", "live")


@pytest.fixture(scope="module")
def many_tokens(gateway: Served) -> str:
    """Id of a run of 50,000 tokens."""
    with httpx.Client(base_url=gateway.url, timeout=30) as http:
        response = http.post("/v1/runs", json={"assistant_id": "tokens", "input": "50000"})
        response.raise_for_status()
        return response.json()["run_id"]


@pytest.mark.slow
def test_page_of_many_events_has_a_window_of_rows(tab: Tab, many_tokens: str) -> None:
    tab.open(f"runs/{many_tokens}")
    timeline = tab.page.locator("[data-events]")
    expect(tab.page.get_by_text(re.compile("50,0[0-9]{2} events")).first).to_be_visible()
    tab.page.get_by_label("fold tokens").uncheck()
    expect(timeline).to_have_attribute("data-rows", re.compile(r"^\d+$"))
    # A window of the rows is in the document, and not all of them.
    assert tab.page.locator("[role=treegrid] [role=row]").count() < 200
    assert tab.page.locator("*").count() < 3_000
    tab.field("filter").fill("t49999")
    tab.see(re.compile("t49999"))
