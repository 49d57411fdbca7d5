"""A browser for each module, and a gateway with agents that all tests of the module share."""

import json
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.chromium import Tab, chromium
from tests.gateway.command import Served, served

AGENTS: Final = {
    **{name: {"python": f"babelgate.gateway.demo:{name}"} for name in ("echo", "approve", "files", "fail")},
    **{
        name: {"python": f"tests.browser.agents:{name}"}
        for name in ("question", "tool", "tokens", "work", "hostile", "large")
    },
    # It has no effect besides its answer, so it may start again when the gateway has been killed.
    "halting": {"python": "tests.browser.agents:halting", "idempotent": True},
}

NewTab = Callable[..., Tab]
"""Opens a tab with a fresh context. Arguments: options of Playwright's context, and `url` of another gateway."""


@contextmanager
def served_agents(folder: Path, *arguments: str, **settings: Any) -> Generator[Served]:
    """Serve the agents of the tests, with further settings."""
    (folder / "babelgate.yaml").write_text(json.dumps({"agents": AGENTS, **settings}))
    with served(folder, *arguments) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with served_agents(tmp_path_factory.mktemp("gateway")) as started:
        yield started


_PICTURES: Final = pytest.StashKey[Callable[[BaseException], None]]()
"""Function of a test that saves pictures of its tabs, and adds their paths to the message of an error."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Save a picture of each tab of a test that fails, before the tabs are closed."""
    has_failed = call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception)
    if call.when == "call" and has_failed and _PICTURES in item.stash:
        assert call.excinfo is not None
        item.stash[_PICTURES](call.excinfo.value)


@pytest.fixture
def new_tab(
    browser: Any, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[NewTab]:
    """Opens tabs, and checks each for problems at the end."""
    tabs: list[Tab] = []

    def save_pictures(error: BaseException) -> None:
        folder = tmp_path_factory.mktemp("screenshots")
        for number, tab in enumerate(tabs, 1):
            path = folder / f"tab-{number}.png"
            try:
                tab.save_picture(path)
            except Exception as failure:  # such as a page that has crashed
                error.add_note(f"no screenshot of {tab.page.url}: {failure}")
            else:
                error.add_note(f"screenshot of {tab.page.url}: {path}")

    request.node.stash[_PICTURES] = save_pictures
    with ExitStack() as contexts:

        def open_tab(url: str = "", **options: Any) -> Tab:
            context = contexts.enter_context(browser.new_context(**options))
            base: str = url or request.getfixturevalue("gateway").url
            tabs.append(Tab(context.new_page(), base))
            return tabs[-1]

        yield open_tab
        try:
            for tab in tabs:
                tab.check()
        except AssertionError as error:
            save_pictures(error)
            raise


@pytest.fixture
def tab(new_tab: NewTab) -> Tab:
    return new_tab()
