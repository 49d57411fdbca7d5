"""Chromium of the machine, driven by Playwright.

Playwright runs in the process of the tests, from the environment of the peer `browser`, which has the same interpreter.
It is a client of a driver process already, so one more program between the two would only repeat its interface.
"""

import re
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.interop.peers import peer_python
from tests.skip import missing

PROGRAMS: Final = ("chromium-headless-shell", "chromium")
"""Names of Chromium on Debian. The first one starts in a fifth of a second."""
BOUND: Final = 10_000
"""Timeout of each wait, in milliseconds."""
READY: Final = re.compile("ready|live|empty")
"""Values of `data-status` that a loaded page has."""

_REPORT: Final = """
addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI, sourceFile }) =>
  console.error("policy violated: " + violatedDirective + " by " + (blockedURI || sourceFile)));
addEventListener("unhandledrejection", ({ reason }) => console.error("unhandled rejection: " + reason));
"""
"""Script of each page, which turns violations and rejections into errors of the console."""


@cache
def find_module(name: str) -> Any:
    """Import a module of the peer `browser`. Skip or fail the calling test if there is none.

    The modules have no types here, because the type checker does not see the environments of the peers.
    """
    folder = peer_python("browser").parents[1] / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    if str(folder) not in sys.path:
        # Last, so that packages that the tests have too are those of the tests.
        sys.path.append(str(folder))
    return import_module(name)


@contextmanager
def chromium() -> Generator[Any]:
    """Start a browser. Skip the calling test if this machine has none."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        missing(f"Chromium (one of the programs {', '.join(PROGRAMS)})")
    with find_module("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        try:
            yield browser
        finally:
            browser.close()


def expect(what: Any) -> Any:
    """Return Playwright's assertions about a locator or a page."""
    assertions = find_module("playwright.sync_api").expect
    assertions.set_options(timeout=BOUND)
    return assertions(what)


class Tab:
    """Tab of a browser that shows the console, and the problems of its pages.

    Problems are errors in the browser's console, exceptions, requests that failed, and violations of the Content
    Security Policy. A test fails if there is one that it does not expect.
    """

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        """URL of the gateway, or of the proxy before it, without a slash at the end."""
        self.requests: list[str] = []
        """Method and URL of each request, oldest first."""
        self.files: dict[str, int] = {}
        """Size of each static file of the console that the gateway sent, in bytes, as compressed."""
        self.problems: list[str] = []
        self._expected: list[str] = []
        page.set_default_timeout(BOUND)
        page.add_init_script(_REPORT)
        page.on("console", self._note_message)
        page.on("pageerror", self._note_exception)
        page.on("request", self._note_request)
        page.on("requestfailed", self._note_failure)
        page.on("response", self._note_response)

    def _note_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _note_exception(self, error: Any) -> None:
        self.problems.append(f"exception: {error}")

    def _note_request(self, request: Any) -> None:
        self.requests.append(f"{request.method} {request.url}")

    def _note_response(self, response: Any) -> None:
        if response.url.startswith(f"{self.url}/console/") and "/api/" not in response.url:
            self.files[response.url] = int(response.headers.get("content-length", 0))

    def _note_failure(self, request: Any) -> None:
        # The page itself ends a stream or a read that it no longer needs.
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"request failed: {request.method} {request.url}: {request.failure}")

    def expect_problem(self, pattern: str) -> None:
        """Expect problems that the pattern finds."""
        self._expected.append(pattern)

    def unexpected(self) -> list[str]:
        """Return the problems that the test did not expect."""
        return [each for each in self.problems if not any(re.search(one, each) for one in self._expected)]

    def check(self) -> None:
        """Assert that there was no problem that the test did not expect, and that no request left the gateway."""
        assert not (found := self.unexpected()), "\n".join(found)
        local = re.compile(rf"\w+ (?:{re.escape(self.url)}/|data:|blob:)")
        assert [each for each in self.requests if not local.match(each)] == []

    def open(self, route: str) -> None:
        """Open a page, such as `agents/echo/try`, and wait until it has loaded."""
        self.page.goto(f"{self.url}/console/#/{route}")
        self.wait_ready()

    def wait_ready(self) -> None:
        expect(self.page.locator("main")).to_have_attribute("data-status", READY)

    def button(self, name: str | re.Pattern[str], *, exact: bool = True) -> Any:
        return self.page.get_by_role("button", name=name, exact=exact)

    def field(self, name: str | re.Pattern[str], *, exact: bool = False) -> Any:
        return self.page.get_by_label(name, exact=exact)

    @property
    def message(self) -> Any:
        """Field of the playground's next message."""
        return self.page.get_by_role("textbox", name="Message")

    def see(self, text: str | re.Pattern[str]) -> None:
        """Wait until a text is visible."""
        expect(self.page.get_by_text(text).first).to_be_visible()

    def save_picture(self, path: Path) -> None:
        self.page.screenshot(path=path)
