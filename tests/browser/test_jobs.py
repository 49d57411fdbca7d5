"""Jobs of operators: a check, a comparison of protocols and a bench, from the form to the evidence."""

import json
import re
from pathlib import Path

import pytest

from tests.browser.chromium import Tab, expect

FINISHED = 55_000
"""Timeout of a job, in milliseconds."""


def start(tab: Tab, page: str, *agents: str) -> None:
    """Start a job, and wait until its page shows its end."""
    tab.open(page)
    for agent in agents:
        tab.page.get_by_role("group", name=re.compile("^Agents?$")).get_by_label(agent, exact=True).check()
    tab.button(re.compile("^Run ")).click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text(re.compile(" of "))
    expect(tab.button("Run again")).to_be_visible(timeout=FINISHED)
    expect(tab.page.locator("main")).to_have_attribute("data-status", "ready")


@pytest.mark.slow
def test_check_shows_each_verdict_with_its_exchanges(tab: Tab) -> None:
    tab.open("checks")
    expect(tab.page.locator("main[data-status=empty]")).to_be_visible()
    start(tab, "checks", "echo")
    tab.page.get_by_role("button", name=re.compile("^met ")).first.click()
    result = tab.page.locator("[data-verdict=met]").first
    result.locator("summary").first.click()
    expect(result.locator(".exchange, .muted").last).to_be_visible()
    with tab.page.expect_download() as download:
        tab.button("JSON").click()
    assert json.loads(Path(download.value.path()).read_text())
    tab.open("checks")
    expect(tab.page.get_by_role("table").locator("tbody tr")).to_have_count(1)
    tab.open("agents/echo")
    expect(tab.page.get_by_label("Facts")).not_to_contain_text("Last check–")


@pytest.mark.slow
def test_protocols_are_compared_scenario_by_scenario(tab: Tab) -> None:
    start(tab, "across", "echo")
    expect(tab.page.get_by_role("table").first).to_be_visible()


@pytest.mark.slow
def test_bench_shows_intervals_and_attempts(tab: Tab) -> None:
    start(tab, "bench", "echo")
    expect(tab.page.locator("svg").first).to_be_visible()
