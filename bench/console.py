"""Budgets of the web console: first load in Chromium, time until it is usable, a run of 50,000 events, and what the
console costs the gateway.

It needs Debian's chromium-headless-shell, and the environment of the peer `browser` (`python -m tests.interop.peers
browser`).

    .venv/bin/python -m bench.console [--rounds 5] [--tokens 50000]
"""

import argparse
import io
import os
import re
import statistics
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx

from babelgate.gateway.console.pages import FOLDER
from tests.browser.chromium import Tab, chromium, expect
from tests.browser.conftest import served_agents
from tests.gateway.command import Served

LIMITS: Final = {
    "requests of the first load": 45,
    "kB of the first load, compressed": 60,
    "ms until usable": 300,
    "ms until usable, 40 ms latency": 700,
    "ms until all events are shown": 1500,
    "MB of heap with all events": 60,
    "ms of a frame while scrolling, p95": 34,
    "KiB of one stream in the gateway": 50,
    "kB of the console in the wheel": 300,
}
_STREAMS: Final = 200
"""Number of streams whose memory is measured together."""
_LATENCY: Final = {"offline": False, "latency": 40, "downloadThroughput": -1, "uploadThroughput": -1}
_SHOWN: Final = "first row after ms:"
"""Beginning of the console message by which a page reports the time at which its first row was shown."""
_WATCH: Final = """
new MutationObserver((_, observer) => {
    if (!document.querySelector("tbody tr")) return;
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => console.debug("first row after ms:", performance.now())));
}).observe(document, { childList: true, subtree: true });
"""
"""Script of a page that measures the time until its first row is shown. The first callback runs before the frame with
the row is painted, and the second one after it."""
_FRAMES: Final = """async () => {
    const grid = document.querySelector("[role=treegrid]");
    const frames = [];
    let last = await new Promise(requestAnimationFrame);
    for (let step = 0; step < 120; step += 1) {
        grid.scrollTop += 2400;
        const now = await new Promise(requestAnimationFrame);
        frames.push(now - last);
        last = now;
    }
    return frames.sort((one, other) => one - other)[Math.floor(frames.length * 0.95)];
}"""


def measure_first_load(browser: Any, url: str, latency: bool) -> dict[str, float]:
    """Open the page of agents in a fresh context, with an empty cache, and return the figures by name. With `latency`,
    the network has a latency of 40 ms, and only the time is returned.

    The time is from the start of the navigation until the first agent is in the document and painted. The page measures
    it and reports it. Assertions of Playwright look only after 100 ms, 250 ms and so on, and put a large script into
    the page, which takes 15 ms of its time.
    """
    with browser.new_context() as context:
        tab = Tab(context.new_page(), url)
        if latency:
            session = context.new_cdp_session(tab.page)
            session.send("Network.enable")
            session.send("Network.emulateNetworkConditions", _LATENCY)
        tab.page.add_init_script(_WATCH)
        with tab.page.expect_console_message(_is_shown) as message:
            tab.page.goto(f"{url}/console/#/agents")
        elapsed = float(message.value.text.removeprefix(_SHOWN))
        if latency:
            return {"ms until usable, 40 ms latency": elapsed}
        return {
            "requests of the first load": len(tab.files),
            "kB of the first load, compressed": sum(tab.files.values()) / 1000,
            "ms until usable": elapsed,
        }


def _is_shown(message: Any) -> bool:
    return str(message.text).startswith(_SHOWN)


def measure_events(browser: Any, url: str, tokens: int) -> dict[str, float]:
    """Show all events of a run with each of its `tokens` as a separate row. Return the time and the memory that this
    takes, and the time of a frame while scrolling, by name."""
    body = {"assistant_id": "tokens", "input": str(tokens)}
    run_id = httpx.post(f"{url}/v1/runs", json=body, timeout=120).json()["run_id"]
    with browser.new_context() as context:
        tab = Tab(context.new_page(), url)
        tab.open(f"runs/{run_id}")
        timeline = tab.page.locator("[data-events]")
        expect(timeline).to_have_attribute("data-events", str(_events_of(url, run_id)))
        began = time.perf_counter()
        tab.page.get_by_label("fold tokens").uncheck()
        tab.page.get_by_role("row").filter(has_text="message").first.click()
        tab.page.keyboard.press("ArrowRight")
        expect(timeline).to_have_attribute("data-rows", re.compile(rf"^{str(tokens)[:-2]}\d\d$"))
        elapsed = (time.perf_counter() - began) * 1000
        p95 = tab.page.evaluate(_FRAMES)
        session = context.new_cdp_session(tab.page)
        session.send("HeapProfiler.collectGarbage")
        heap = session.send("Runtime.getHeapUsage")["usedSize"] / 1e6
    return {
        "ms until all events are shown": elapsed,
        "MB of heap with all events": heap,
        "ms of a frame while scrolling, p95": p95,
    }


def _events_of(url: str, run_id: str) -> int:
    folded = httpx.get(f"{url}/console/api/v1/runs/{run_id}/records", params={"fold": 1, "limit": 1000}).json()
    return sum(record.get("n", 1) for record in folded["records"])


def measure_streams(gateway: Served) -> dict[str, float]:
    """Return the memory of the gateway for one open stream of changes, by name. Other streams have been opened and
    closed before, so memory that stays allocated after them is not counted."""
    used = list[int]()
    for count in (_STREAMS // 2, _STREAMS):
        with ExitStack() as streams:
            http = streams.enter_context(httpx.Client(timeout=30, limits=httpx.Limits(max_connections=_STREAMS)))
            before = _resident(gateway)
            for _ in range(count):
                streams.enter_context(http.stream("GET", f"{gateway.url}/console/api/v1/changes")).raise_for_status()
            used.append(_resident(gateway) - before)
    return {"KiB of one stream in the gateway": used[-1] / _STREAMS / 1024}


def _resident(gateway: Served) -> int:
    """Return the resident memory of a gateway in bytes."""
    return int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_wheel() -> dict[str, float]:
    """Compress the console's files as a wheel does, and return their size by name."""
    folder = FOLDER.parent
    with zipfile.ZipFile(io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(folder))
        return {"kB of the console in the wheel": sum(each.compress_size for each in archive.infolist()) / 1000}


def measure(rounds: int, tokens: int) -> Iterator[dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder, chromium() as browser, served_agents(Path(folder)) as gateway:
        costs = measure_streams(gateway) | measure_wheel()
        for _ in range(rounds):
            yield {
                **costs,
                **measure_first_load(browser, gateway.url, latency=False),
                **measure_first_load(browser, gateway.url, latency=True),
                **measure_events(browser, gateway.url, tokens),
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.console", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the medians are printed")
    parser.add_argument("--tokens", type=int, default=50_000, help="tokens of the large run")
    options = parser.parse_args()
    rounds = list(measure(options.rounds, options.tokens))
    for name, limit in LIMITS.items():
        value = statistics.median(each[name] for each in rounds)
        print(f"{name:38} {value:8.0f}   limit {limit}{'' if value <= limit else '   EXCEEDED'}")


if __name__ == "__main__":
    main()
