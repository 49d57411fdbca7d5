"""Log lines as JSON: each is one object with the request and the run, and no text of callers can break it."""

import json
import logging
import sys
from collections.abc import Generator
from typing import Any

import pytest

from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.gateway.observe import REQUEST, RUN, RequestContext, RunContext
from babelgate.gateway.telemetry.json_lines import JsonFormatter


@pytest.fixture(autouse=True)
def _clean_context() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    request, run = REQUEST.set(None), RUN.set(None)
    yield
    REQUEST.reset(request)
    RUN.reset(run)


def line(message: str, *arguments: object, name: str = "babelgate", node: str | None = None, **more: Any) -> Any:
    record = logging.makeLogRecord(
        {"name": name, "levelno": 30, "levelname": "WARNING", "msg": message, "args": arguments, **more}
    )
    text = JsonFormatter(node).format(record)
    assert "\n" not in text
    return json.loads(text)


def test_line_has_the_four_fields_of_every_line():
    found = line("agent=%s", "echo", created=1_790_000_000.25)
    assert found == {
        "time": "2026-09-21T14:13:20.250+00:00",
        "level": "warning",
        "logger": "babelgate",
        "message": "agent=echo",
    }


def test_line_names_the_node():
    assert line("ready", node="east-1")["node"] == "east-1"


def test_line_names_the_request():
    REQUEST.set(RequestContext("r1", trace_id="a" * 32, owner="alice", protocol="acp", status=200, duration_ms=1.5))
    found = line("something happened")
    assert {name: found[name] for name in ("request_id", "trace_id", "owner", "protocol")} == {
        "request_id": "r1",
        "trace_id": "a" * 32,
        "owner": "alice",
        "protocol": "acp",
    }
    assert "status" not in found
    assert "span_id" not in found


def test_line_of_the_request_has_status_and_duration():
    REQUEST.set(RequestContext("r1", status=200, duration_ms=1.5))
    found = line("GET /", name="babelgate.request")
    assert (found["status"], found["duration_ms"]) == (200, 1.5)


def test_line_of_a_run_names_the_run_and_its_request():
    REQUEST.set(RequestContext("r1", thread="another"))
    RUN.set(RunContext("alice", "a2a", "echo", "thread-1", "task-1", "run-1"))
    found = line("attempt failed")
    assert found["request_id"] == "r1"
    assert [found[name] for name in RunContext._fields] == ["alice", "a2a", "echo", "thread-1", "task-1", "run-1"]


def test_fault_shows_the_response_of_the_server():
    fault = Fault(
        code=FaultCode.AGENT_FAILED, message="refused", details={"status": 422, "body": "no\x1b", "secret": 1}
    )
    expected = {"code": "agent_failed", "message": "refused", "status": 422, "body": "no\x1b"}
    assert line("failed", fault=fault)["fault"] == expected


def test_exception_has_its_traceback_and_fault():
    try:
        raise FaultError(FaultCode.INTERNAL, "broken", reason="disk")
    except FaultError:
        found = line("failed", exc_info=sys.exc_info())
    assert found["fault"] == {"code": "internal", "message": "broken", "reason": "disk"}
    assert found["exception"].endswith("FaultError: broken")


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "\u2028", "\ud800", '"}', "\x85\x9b"])
def test_text_of_others_cannot_break_a_line(text: str):
    found = line("path=%s", text)
    assert found["message"].isprintable()
