"""Output of an agent is data: no page executes it, loads what it names, or lets it look like the console."""

import re
from pathlib import Path
from typing import Any

import httpx

from tests.browser.agents import BAD_NAME
from tests.browser.chromium import Tab, expect
from tests.gateway.command import Served


def check_inert(tab: Tab) -> None:
    """Assert that no page has elements, attributes or addresses of the agent."""
    page = tab.page
    assert page.title() != "executed"
    assert page.locator("main :is(script, iframe, style, svg[onload], [onerror], [onload])").count() == 0
    assert page.locator("main img:not([src^='blob:'])").count() == 0
    for address in page.locator("main a").evaluate_all("links => links.map(link => link.href)"):
        assert re.match(r"https?://", address), address
    tab.check()


def test_output_of_a_hostile_agent_is_never_interpreted(tab: Tab, gateway: Served) -> None:
    tab.open("agents/hostile/try")
    tab.message.fill("go")
    tab.button("Send").click()
    expect(tab.page.locator("[data-answered=no]")).to_be_visible()
    expect(tab.page.locator("[data-who=agent]").first).to_contain_text("onerror")
    for summary in tab.page.locator("main summary").all():
        summary.click()
    check_inert(tab)
    run_id = tab.page.locator("[data-run]").first.get_attribute("data-run")
    thread_id = re.search("thread=([^&]+)", tab.page.url)
    assert thread_id is not None
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Download").first.click()
    assert "/" not in download.value.suggested_filename and "<script>" in Path(download.value.path()).read_text()
    routes = [f"runs/{run_id}", f"runs/{run_id}?view=seen", f"runs/{run_id}?view=raw", f"threads/{thread_id[1]}"]
    routes += ["runs", "threads", f"compare?a={run_id}&b={run_id}"]
    for route in routes:
        tab.open(route)
        check_inert(tab)
    tab.open(f"runs/{run_id}?view=seen")
    expect(tab.page.locator("[data-http]").first).to_be_visible()
    tab.open(f"runs/{run_id}")
    tab.page.get_by_role("row").filter(has_text=BAD_NAME).first.click()
    check_inert(tab)


def test_names_in_addresses_are_never_interpreted(tab: Tab, gateway: Served) -> None:
    tab.expect_problem("404|400")
    bad: Any = httpx.URL(gateway.url, path=f"/{BAD_NAME}").raw_path.decode()[1:]
    for route in (f"agents/{bad}", f"agents/{bad}/try?text={bad}", f"runs/{bad}", f"threads?q={bad}", f"{bad}", "%2"):
        tab.page.goto(f"{gateway.url}/console/#/{route}")
        expect(tab.page.locator("main:not([data-status=loading])")).to_be_visible()
        check_inert(tab)


def test_large_json_is_shown_in_parts(tab: Tab) -> None:
    tab.open("agents/large/try")
    tab.message.fill("go")
    tab.button("Send").click()
    expect(tab.page.locator("[data-run-status=success]")).to_be_visible()
    tab.see(re.compile("shown as text"))
    assert tab.page.locator("*").count() < 1_000
    assert len(tab.page.content()) < 1_000_000
    tab.button(re.compile("Show more"), exact=False).first.click()
    tab.page.get_by_role("link", name="Run page").click()
    tab.wait_ready()
    expect(tab.page.get_by_role("treegrid").get_by_role("row").first).to_be_visible()
    assert len(tab.page.content()) < 1_000_000
