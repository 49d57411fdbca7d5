"""Screenshots of the console for the README, from a gateway that runs: the page of a run, and the playground.

python -m docs.screenshots
"""

import tempfile
from pathlib import Path
from typing import Final

from docs.palette import shrink
from tests.browser.chromium import Tab, chromium, expect
from tests.gateway.command import served

IMAGES: Final = Path(__file__).parent / "images"
_SIZE: Final = {"width": 1040, "height": 600}
_AGENTS: Final = """
agents:
  trip: {python: "tests.browser.agents:trip"}
"""
_QUESTION: Final = "Book me a train to Paris on Friday"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        (Path(folder) / "babelgate.yaml").write_text(_AGENTS)
        with served(Path(folder)) as gateway:
            page = browser.new_page(viewport=_SIZE, color_scheme="light", reduced_motion="reduce")
            tab = Tab(page, gateway.url)
            _take_playground(tab)
            _take_run(tab)
            tab.check()
    for path in sorted(IMAGES.glob("console-*.png")):
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")


def _take_playground(tab: Tab) -> None:
    """Take a picture of the playground, in which an agent waits for the answer to its question."""
    tab.open("agents/trip/try")
    tab.message.fill(_QUESTION)
    tab.button("Send").click()
    form = tab.page.locator("[data-answered=no]")
    form.get_by_label("yes").check()
    form.get_by_label("note").fill("a window seat")
    tab.page.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0); }")
    _save(tab, "playground")


def _take_run(tab: Tab) -> None:
    """Answer the question, and take a picture of the timeline of the run that continues."""
    tab.button("Answer").click()
    expect(tab.page.locator("[data-run-status=success]")).to_be_visible()
    tab.page.get_by_role("link", name="Run page").last.click()
    tab.wait_ready()
    tab.page.get_by_role("row").filter(has_text="book_train").first.click()
    tab.page.evaluate("() => document.activeElement.blur()")
    _save(tab, "run")


def _save(tab: Tab, name: str) -> None:
    (IMAGES / f"console-{name}.png").write_bytes(shrink(tab.page.screenshot()))


if __name__ == "__main__":
    main()
