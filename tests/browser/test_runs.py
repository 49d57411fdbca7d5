"""Pages about runs: timeline, views of all protocols, exchanges, comparison, lists, and requests of protocols."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.chromium import Tab, expect
from tests.browser.conftest import NewTab, served_agents
from tests.gateway.command import Served


def start(gateway: Served, agent: str, text: str) -> Any:
    """Run an agent to its end or its question, and return the run."""
    body = {"assistant_id": agent, "input": text}
    response = httpx.post(f"{gateway.url}/v1/runs", json=body, timeout=30)
    response.raise_for_status()
    return response.json()


def records_of(gateway: Served, run_id: str) -> list[Any]:
    """Return all events of a run, each as one record."""
    records: list[Any] = []
    after: int | None = 0
    while after is not None:
        query = {"limit": 1000, "after": after}
        page = httpx.get(f"{gateway.url}/console/api/v1/runs/{run_id}/records", params=query).json()
        records, after = records + page["records"], page["next"]
    return records


@pytest.fixture(scope="module")
def done(gateway: Served) -> str:
    """Id of a run with a step, a tool, a message and a file."""
    return start(gateway, "work", "alpha beta gamma")["run_id"]


def test_timeline_shows_each_span_and_its_event(tab: Tab, gateway: Served, done: str) -> None:
    tab.open(f"runs/{done}")
    grid = tab.page.get_by_role("treegrid", name="Timeline")
    for name in ("word_count", "plan", "report.txt"):
        expect(grid.get_by_role("row").filter(has_text=name).first).to_be_visible()
    row = grid.get_by_role("row").filter(has_text="word_count").first
    row.click()
    details = tab.page.get_by_role("complementary", name="Selected event")
    expect(details).to_contain_text("word_count")
    tab.field("filter").fill("word_count")
    expect(grid.get_by_role("row").filter(has_text="report.txt")).to_have_count(0)
    tab.page.get_by_role("tab", name="Raw").click()
    expect(tab.page.get_by_role("tabpanel")).to_contain_text(done)
    with tab.page.expect_download() as download:
        tab.button("Export").click()
    exported = json.loads(Path(download.value.path()).read_text())
    assert exported["format"] == "babelgate-run" and exported["run"]["run_id"] == done
    assert exported["records"] == records_of(gateway, done)
    assert exported["records"][-1]["event_type"] == "run_ended"
    assert all("response" in look for look in exported["looks"] if look["request"])


def test_export_has_each_delta_of_a_long_answer(tab: Tab, gateway: Served) -> None:
    run_id = start(gateway, "tokens", "2500")["run_id"]
    tab.open(f"runs/{run_id}")
    with tab.page.expect_download() as download:
        tab.button("Export").click()
    exported = json.loads(Path(download.value.path()).read_text())["records"]
    assert exported == records_of(gateway, run_id) and len(exported) > 2500


def test_every_protocol_shows_the_run_with_its_losses(tab: Tab, done: str, gateway: Served) -> None:
    looks = httpx.get(f"{gateway.url}/console/api/v1/runs/{done}/looks").json()["items"]
    tab.open(f"runs/{done}")
    tab.page.get_by_role("row").filter(has_text="report.txt").first.click()
    tab.page.get_by_role("link", name="Find in every protocol").click()
    columns = tab.page.locator("[data-look]")
    expect(columns).to_have_count(len(looks))
    for position, look in enumerate(looks):
        column = columns.nth(position)
        expect(column.get_by_role("heading")).to_have_text(look["title"])
        if look["request"]:
            expect(column.locator("[data-http]").first).to_have_text(re.compile("200"))
            expect(column.locator("[data-found]")).to_be_visible()
        else:
            expect(column).to_contain_text(look["why_not"])
    protocols = httpx.get(f"{gateway.url}/console/api/v1/protocols").json()
    assert {each["protocol"] for each in looks} == {each["name"] for each in protocols}
    assert tab.page.locator("[data-found=yes]").count() >= 2
    lost = tab.page.locator("[data-protocol=openai]").first
    expect(lost.locator("[data-feature=artifact]")).to_contain_text("a response has no files")
    expect(lost.locator("[data-found=no]")).to_contain_text("not here: lost artifact")


@pytest.fixture(scope="module")
def before(gateway: Served, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """Gateway in front of `gateway`: its agent `far` is the agent `fail` of `gateway`."""
    folder = tmp_path_factory.mktemp("before")
    far = {"url": f"{gateway.url}/agent/fail", "headers": {"X-Secret": "upstream-secret"}}
    with served_agents(folder, agents={"far": far}) as started:
        yield started


def test_exchanges_of_a_failed_run_have_no_secrets(new_tab: NewTab, before: Served) -> None:
    tab = new_tab(before.url)
    body = {"assistant_id": "far", "input": "out of luck", "background": True}
    run_id = httpx.post(f"{before.url}/v1/runs", json=body).json()["run_id"]
    tab.open(f"runs/{run_id}")
    expect(tab.page.locator("[data-word=error]").first).to_be_visible()
    tab.page.get_by_role("tab", name="Wire").click()
    table = tab.page.get_by_role("table", name="Exchanges")
    table.get_by_role("row").filter(has_text="POST").first.get_by_role("button").click()
    exchange = tab.page.get_by_role("region", name=re.compile("^Exchange"))
    expect(exchange).to_contain_text("out of luck")
    for headers in exchange.locator("details").all():
        headers.locator("summary").first.click()
    assert "upstream-secret" not in tab.page.content()
    tab.open("runs")
    expect(tab.page.locator("tbody tr").first).to_contain_text("out of luck")
    tab.open("health")
    expect(tab.page.get_by_role("table", name="Faults")).to_contain_text("far")


def test_two_runs_are_compared_by_their_events(tab: Tab, gateway: Served, done: str) -> None:
    other = start(gateway, "work", "alpha beta")["run_id"]
    tab.open(f"compare?a={done}&b={other}")
    tab.see(re.compile("gamma"))
    expect(tab.page.get_by_role("table").first).to_be_visible()


def test_lists_are_live_filtered_and_used_by_keyboard(tab: Tab, gateway: Served, done: str) -> None:
    tab.open("runs?agent=work")
    expect(tab.page.locator("[data-live]")).to_have_attribute("data-live", "live")
    rows = tab.page.locator("tbody tr")
    count = rows.count()
    run = start(gateway, "work", "a new run")["run_id"]
    tab.page.locator("[data-fresh]").click()
    expect(rows).to_have_count(count + 1)
    tab.page.keyboard.press("j")
    expect(tab.page.locator(f"[data-key='{run}'] a").first).to_be_focused()
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("heading", level=1)).to_be_focused()
    assert run in tab.page.url
    tab.page.keyboard.press("g")
    tab.page.keyboard.press("t")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Threads")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("a new run")
    expect(tab.page.locator("tbody tr")).to_have_count(1)
    tab.page.locator("tbody a").first.click()
    tab.wait_ready()
    tab.see(re.compile("The text has"))
    for name in ("State", "Revisions", "Files", "Metadata"):
        tab.page.get_by_role("tab", name=name).click()
        expect(tab.page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
    tab.page.keyboard.press("?")
    expect(tab.page.get_by_role("dialog", name="Help")).to_be_visible()
    tab.page.keyboard.press("Escape")
    expect(tab.page.get_by_role("dialog", name="Help")).to_have_count(0)


def test_request_of_every_protocol_is_sent(tab: Tab, gateway: Served) -> None:
    protocols = [each["name"] for each in httpx.get(f"{gateway.url}/console/api/v1/protocols").json()]
    for protocol in protocols:
        tab.open(f"request?protocol={protocol}&agent=echo")
        tab.button("Send").click()
        expect(tab.page.locator("[data-response='200']")).to_be_visible()


def test_agent_page_shows_what_protocols_carry_and_snippets(tab: Tab) -> None:
    tab.open("agents/echo")
    expect(tab.page.get_by_role("list", name="Protocols").locator("> li").first).to_be_visible()
    tab.page.get_by_role("link", name="Connect").click()
    tab.wait_ready()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Connect to echo")


def test_settings_in_force_hide_secrets(new_tab: NewTab, tmp_path: Path) -> None:
    keys = {"alice": "alice-secret"}
    rules = [{"who": "key:alice", "agents": ["*"], "allow": "*"}]
    with served_agents(tmp_path, keys=keys, access=rules) as operated:
        tab = new_tab(operated.url)
        tab.expect_problem("401")
        tab.page.goto(f"{operated.url}/console/#/settings")
        tab.page.get_by_label("API key or token").fill("alice-secret")
        tab.button("Use this key").click()
        tab.page.get_by_label("From").select_option("set")
        row = tab.page.get_by_role("row").filter(has_text="keys")
        expect(row.first).to_contain_text("secret, not shown")
        tab.page.get_by_label("From").select_option("")
        assert "alice-secret" not in tab.page.content()
        tab.open("health")
        tab.see(re.compile("everything is ok"))
