"""Paths of an upstream server: those of LangGraph, and those of the Agent Protocol in its two layouts."""

import re
from typing import Final, Literal

from babelgate.canonical import FaultCode, FaultError

Layout = Literal["langgraph", "readme", "openapi"]
"""Layout of a server's paths. `langgraph` and `readme` (of the Agent Protocol's README) have the thread in the path of
a run; `openapi` (of its OpenAPI 0.1.6) has the thread in the body."""

_RUN: Final = re.compile(r"/runs/([^/?#]+)(/stream)?$")


def run_id_in(location: str) -> str | None:
    """Return the run id in a `Content-Location` such as `/threads/<id>/runs/<id>` or `/runs/<id>`. Return None if it
    contains none."""
    match = _RUN.search(location)
    return None if match is None else match[1]


_ID: Final = re.compile(r"(?=.*[A-Za-z0-9])[-A-Za-z0-9_.:~]{1,255}")


def check_id(text: str) -> str:
    """Return the server's id unchanged if it is safe as a segment of a path. Raises agent_invalid for an id that would
    lead to another path."""
    if not _ID.fullmatch(text):
        raise FaultError(
            FaultCode.AGENT_INVALID, f"The agent's server sent an id that cannot be part of a URL: {text[:50]!r}"
        )
    return text


class Route:
    """Paths of one run on a server. `run_id` is None until the server reports the run's id."""

    def __init__(self, layout: Layout, thread_id: str | None, run_id: str | None = None) -> None:
        self.layout: Layout = layout
        self.thread_id = thread_id
        self.run_id = run_id

    @property
    def _runs(self) -> str:
        nested = self.layout != "openapi" and self.thread_id is not None
        return f"/threads/{check_id(self.thread_id or '')}/runs" if nested else "/runs"

    @property
    def create(self) -> str:
        return f"{self._runs}/stream"

    @property
    def run(self) -> str:
        return f"{self._runs}/{check_id(self.run_id or '')}"

    @property
    def stream(self) -> str:
        return f"{self.run}/stream"

    @property
    def join(self) -> str:
        """Path whose response body is complete only when the run has stopped."""
        return f"{self.run}/{'join' if self.layout == 'langgraph' else 'wait'}"

    @property
    def cancel(self) -> str:
        return f"{self.run}/cancel"

    @property
    def runs(self) -> str:
        """Path that lists the newest runs of the thread. Not for the layout `openapi`, which has a search instead."""
        return f"/threads/{check_id(self.thread_id or '')}/runs?limit=5"

    @property
    def thread(self) -> str:
        return f"/threads/{check_id(self.thread_id or '')}"
