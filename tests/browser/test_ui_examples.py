"""The examples with a page, in Chromium: streams, tool calls, questions, errors, and a reload during an answer."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.gateway.settings.model import DEMO
from tests.browser.chromium import Tab, expect
from tests.browser.example import commands_of, served_page
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
def use_chat(gateway: Served, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with served_page("ui-use-chat", tmp_path_factory.mktemp("page"), gateway.url) as url:
        yield url


class ChatPage:
    """A page of an example in a tab."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.answers = tab.page.locator("article.assistant")

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
        assert page.tab.problems == []


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


@pytest.mark.parametrize("example", ["ui-use-chat"])
def test_the_readme_has_the_commands_that_are_tested(example: str) -> None:
    assert commands_of(example) == ["npm install", "babelgate serve", "npm start"]
