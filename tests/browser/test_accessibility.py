"""Accessibility of each page (WCAG 2.2 AA), by axe-core and by keyboard, on screens of all widths."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.chromium import READY, Tab, expect, find_module
from tests.browser.conftest import NewTab
from tests.gateway.command import Served
from tests.goldens import check_golden

AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
PAGES = (
    "agents",
    "agents/echo",
    "agents/question/try?thread={thread}",
    "agents/echo/connect",
    "threads",
    "threads/{thread}",
    "runs",
    "runs/{run}",
    "runs/{run}?view=seen",
    "runs/{run}?view=wire",
    "compare?a={run}&b={other}",
    "request?agent=echo",
    "checks",
    "across",
    "bench",
    "health",
    "settings",
    "key",
    "api",
    "nowhere",
)
"""Each page of the console, in a state with content."""
NARROW = {"width": 320, "height": 640}


@pytest.fixture(scope="module")
def content(gateway: Served) -> dict[str, str]:
    """Ids of a thread that asks, and of two runs with all kinds of events."""
    ids: dict[str, str] = {}
    for name, agent, text in (
        ("run", "work", "alpha beta"),
        ("other", "work", "gamma"),
        ("asks", "question", "object"),
    ):
        body = {"assistant_id": agent, "input": text}
        run = httpx.post(f"{gateway.url}/v1/runs", json=body, timeout=30).json()
        ids |= {name: run["run_id"], "thread": run["thread_id"]}
    return ids
