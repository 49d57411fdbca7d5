"""The examples with a page, in Chromium: streams, tool calls, questions, errors, and a reload during an answer."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from babelgate.gateway.settings.model import DEMO
from tests.browser.chromium import Tab, expect
from tests.browser.example import served_page
from tests.gateway.command import Served, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

AGENTS: Final = {
    **{name: {"python": f"babelgate.gateway.demo:{name}"} for name in DEMO},
    "halting": {"python": "tests.browser.agents:halting"},
}
WORDS: Final = re.compile("w0 .*w19 .*w39", re.DOTALL)
"""Answer of the agent `halting`, which stops after its twentieth word."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "babelgate.yaml").write_text(json.dumps({"agents": AGENTS}))
    with served(folder) as started:
        yield started


@pytest.fixture(scope="module")
def use_chat(browser: Any, gateway: Served, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with served_page("ui-use-chat", tmp_path_factory.mktemp("page"), gateway.url) as url:
        yield url


@pytest.fixture(scope="module")
def copilotkit(browser: Any, gateway: Served, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with served_page("ui-copilotkit", tmp_path_factory.mktemp("page"), gateway.url) as url:
        yield url


class ChatPage:
    """A page of an example in a tab."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.answers = tab.page.locator("article.assistant, [data-testid=copilot-assistant-message]")

    def open(self, url: str) -> None:
        self.tab.page.goto(url)

    def send(self, text: str) -> None:
        self.tab.message.fill(text)
        self.tab.button("Send").click()

    def sees(self, text: str | re.Pattern[str], number: int = -1) -> None:
        """Wait until an answer, by default the last one, has the text."""
        expect(self.answers.nth(number)).to_contain_text(text)

    def is_ready(self) -> None:
        expect(self.tab.page.locator("main")).to_have_attribute("data-status", "ready")


@pytest.fixture
def page(browser: Any) -> Generator[ChatPage]:
    with browser.new_context() as context:
        page = ChatPage(Tab(context.new_page(), ""))
        yield page
        assert page.tab.unexpected() == []


def test_use_chat_shows_text_tools_and_errors(use_chat: str, page: ChatPage) -> None:
    page.open(f"{use_chat}?agent=stream")
    page.send("one two three")
    page.sees("one two three")
    page.open(f"{use_chat}?agent=tools")
    page.send("four words are here")
    page.sees('word_count({"text":"four words are here"}) → 4')
    page.sees("4 words")
    page.open(f"{use_chat}?agent=fail")
    page.send("on purpose")
    expect(page.tab.page.get_by_role("alert")).to_contain_text("on purpose")


def test_use_chat_answers_questions(use_chat: str, page: ChatPage) -> None:
    page.open(f"{use_chat}?agent=ask")
    page.send("hi")
    page.sees("What is your name?")
    page.is_ready()
    page.send("Ada")
    page.sees("Hello, Ada.")
    page.open(f"{use_chat}?agent=approve")
    page.send("go")
    page.tab.button("Approve").first.click()
    page.tab.button("Deny").click()
    page.sees(re.compile("write: approved.*send: not approved", re.DOTALL))
    page.is_ready()
    page.tab.page.reload()
    page.sees(re.compile("write: approved.*send: not approved", re.DOTALL))


def test_use_chat_continues_an_answer_after_a_reload(use_chat: str, page: ChatPage, tmp_path: Path) -> None:
    page.open(f"{use_chat}?agent=halting")
    page.send(str(tmp_path / "go"))
    page.sees("w19")
    page.tab.page.reload()
    page.sees("w19")
    (tmp_path / "go").touch()
    page.sees(WORDS)
    page.is_ready()
    assert page.answers.count() == 1
    assert page.answers.inner_text().split() == [f"w{number}" for number in range(40)]


def test_use_chat_stops_an_answer(use_chat: str, page: ChatPage, tmp_path: Path) -> None:
    page.open(f"{use_chat}?agent=halting")
    page.send(str(tmp_path / "never"))
    page.sees("w19")
    page.tab.button("Stop").click()
    page.is_ready()


def test_a_page_of_another_origin_needs_an_entry_in_cors(browser: Any, tmp_path: Path) -> None:
    with (
        served(tmp_path, BABELGATE_CORS="https://app.example") as gateway,
        served_page("ui-use-chat", tmp_path, gateway.url) as url,
        # Chromium asks the user before a page of the web calls this machine.
        browser.new_context(permissions=["local-network-access"]) as context,
    ):

        def fulfill(route: Any) -> None:
            """Answer a request for a file of the page, for which the browser keeps the other origin."""
            route.fulfill(response=route.fetch(url=re.sub(r"^https://[^/]+/", url, route.request.url)))

        context.route(re.compile(r"^https://(app|other)\.example/"), fulfill)
        page = ChatPage(Tab(context.new_page(), ""))
        page.open("https://app.example/?agent=tools")
        page.send("one two")
        page.sees("2 words")
        assert page.tab.unexpected() == []
        other = context.new_page()
        with other.expect_event("requestfailed") as failed:
            other.goto("https://other.example/?agent=tools")
        assert failed.value.url.startswith(gateway.url)


class KitPage(ChatPage):
    """A page of CopilotKit. It first reads the conversation, and sends no message before it has."""

    def open(self, url: str) -> None:
        with self.tab.page.expect_response(re.compile("/connect$")) as response:
            self.tab.page.goto(url)
        response.value.finished()

    def send(self, text: str) -> None:
        self.is_idle()
        field = self.tab.page.get_by_test_id("copilot-chat-textarea")
        field.fill(text)
        field.press("Enter")

    def is_idle(self) -> None:
        expect(self.tab.page.locator("[data-copilot-running=false]").first).to_be_visible()


@pytest.fixture
def kit(page: ChatPage) -> KitPage:
    return KitPage(page.tab)


def test_copilotkit_shows_text_tools_and_errors(copilotkit: str, kit: KitPage) -> None:
    kit.open(f"{copilotkit}?agent=stream")
    kit.send("one two three")
    kit.sees("one two three")
    kit.open(f"{copilotkit}?agent=tools")
    kit.send("four words are here")
    kit.sees("4 words")
    expect(kit.tab.page.get_by_test_id("copilot-tool-render-name")).to_have_text("word_count")
    kit.open(f"{copilotkit}?agent=fail")
    kit.send("on purpose")
    kit.tab.expect_problem("on purpose")
    expect(kit.tab.page.get_by_role("alert")).to_contain_text("on purpose")


def test_copilotkit_answers_questions(copilotkit: str, kit: KitPage) -> None:
    kit.open(f"{copilotkit}?agent=ask")
    kit.send("hi")
    kit.tab.see("What is your name?")
    kit.tab.page.reload()
    kit.tab.field("Answer", exact=True).fill("Ada")
    kit.tab.button("Answer").click()
    kit.sees("Hello, Ada.")
    kit.open(f"{copilotkit}?agent=approve")
    kit.send("go")
    kit.tab.button("Approve").first.click()
    kit.tab.button("Deny").click()
    kit.sees(re.compile("write: approved.*send: not approved", re.DOTALL))


def test_copilotkit_continues_an_answer_after_a_reload(copilotkit: str, kit: KitPage, tmp_path: Path) -> None:
    kit.open(f"{copilotkit}?agent=halting")
    kit.send(str(tmp_path / "go"))
    kit.sees("w19")
    kit.tab.page.reload()
    kit.sees("w19")
    (tmp_path / "go").touch()
    kit.sees(WORDS)
    assert kit.answers.count() == 1


def test_copilotkit_stops_an_answer(copilotkit: str, kit: KitPage, gateway: Served, tmp_path: Path) -> None:
    kit.open(f"{copilotkit}?agent=halting")
    kit.send(str(tmp_path / "never"))
    kit.sees("w19")
    kit.tab.page.get_by_test_id("copilot-send-button").click()
    thread = kit.tab.page.url.partition("thread=")[2]
    found = httpx.post(f"{gateway.url}/ag-ui/halting/connect", json={"threadId": thread}, timeout=60)
    assert "cancelled" in found.text.splitlines()[-2]
