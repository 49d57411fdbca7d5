"""Tests of the recorder of HTTP exchanges: it keeps them unchanged, without keys, up to a limit."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from babelgate.adapters.kit.client.calls import Calls
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.cli.wire import BODY, EXCHANGES, WireRecorder
from tests.serving import serving

BOUND = 30
SECRET = 'k3y-"of"-mine'


class Plain(Calls):
    async def read_error_response(self, response: httpx.Response) -> FaultError:
        return FaultError(FaultCode.AGENT_FAILED, str(response.status_code))


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Return the body of the request, as a stream of events at /events, and with status 401 at /refused."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    kind = b"text/event-stream" if scope["path"] == "/events" else b"application/json"
    status = 401 if scope["path"] == "/refused" else 200
    headers = [(b"content-type", kind), (b"set-cookie", b"session=1234567")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def overhear(
    *requests: tuple[str, bytes], headers: Mapping[str, str] | None = None, count: int = 1
) -> Mapping[str, Any]:
    """Send each request `count` times to the server `echo`, and return the recording."""
    recorder = WireRecorder()
    async with asyncio.timeout(BOUND), serving(echo) as url:
        with recorder.connect():
            calls = Plain(url, headers=headers)
            for path, body in requests:
                for _ in range(count):
                    await _post(calls, path, body)
            await calls.aclose()
        return recorder.as_json("http://127.0.0.1:9", [headers or {}], [SECRET])


async def _post(calls: Calls, path: str, body: bytes) -> None:
    try:
        async with calls.request("POST", path, {}, body=body) as response:
            async for _ in response.aiter_bytes():
                pass
    except FaultError:
        assert path == "/refused"


async def test_an_exchange_is_recorded_unchanged() -> None:
    recording = await overhear(("/some", b'{"a": "\xc3\xa9"}'), ("/refused", b"[]"))
    first, second = recording["exchanges"]
    assert (first["side"], first["method"], first["body"]) == ("agent", "POST", '{"a": "é"}')
    assert first["url"].endswith("/some")
    assert (first["answer"]["status"], first["answer"]["body"]) == (200, '{"a": "é"}')
    assert first["answer"]["is_ended"] is True
    assert ["content-type", "application/json"] in first["answer"]["headers"]
    assert second["answer"]["status"] == 401
    assert first["at"] <= second["at"]
    assert "missed" not in recording


async def test_events_are_recorded_with_their_times() -> None:
    recording = await overhear(("/events", b"event: a\ndata: 1\n\ndata: 2\nid: 7\n\n"))
    events = recording["exchanges"][0]["answer"]["events"]
    assert [each["text"] for each in events] == ["event: a\ndata: 1", "data: 2\nid: 7"]
    assert 0 < events[0]["at"] <= events[1]["at"]


async def test_keys_are_not_recorded() -> None:
    headers = {"X-Mode": "abc", "X-Key": SECRET}
    recording = await overhear(("/some", json.dumps([SECRET, "cookie"]).encode()), headers=headers)
    text = json.dumps(recording)
    assert "of\\" not in text and "1234567" not in text
    (exchange,) = recording["exchanges"]
    assert exchange["body"] == exchange["answer"]["body"] == '["[redacted]", "cookie"]'
    assert ["X-Mode", "[redacted]"] in exchange["headers"], "short values are redacted, too"
    assert ["set-cookie", "[redacted]"] in exchange["answer"]["headers"]


async def test_a_too_long_body_is_cut_and_marked() -> None:
    body = b"x" * BODY + SECRET.encode()
    recording = await overhear(("/some", body), ("/some", b"x" * (BODY - 3) + SECRET.encode()))
    for exchange, length in zip(recording["exchanges"], (len(body), BODY - 3 + len(SECRET)), strict=True):
        assert exchange["body_cut"] == exchange["answer"]["cut"] == length - BODY
        for body_text in (exchange["body"], exchange["answer"]["body"]):
            assert BODY - 50 < len(body_text) <= BODY
            assert set(body_text) == {"x"}, "the beginning of a key must not remain"


async def test_too_many_events_are_cut_and_marked() -> None:
    body = b"data: 1234\n\n" * (BODY // 10)
    recording = await overhear(("/events", body))
    answer = recording["exchanges"][0]["answer"]
    assert answer["cut"] == len(body) - BODY
    assert len(answer["events"]) == BODY // 12


async def test_too_many_exchanges_are_only_counted() -> None:
    recording = await overhear(("/some", b"1"), count=EXCHANGES + 2)
    assert (len(recording["exchanges"]), recording["missed"]) == (EXCHANGES, 2)


async def test_exchanges_outside_of_the_block_are_not_recorded() -> None:
    recorder = WireRecorder()
    async with asyncio.timeout(BOUND), serving(echo) as url:
        with recorder.connect():
            pass
        calls = Plain(url)
        await _post(calls, "/some", b"1")
        await calls.aclose()
    assert recorder.as_json(url, [], []) == {"exchanges": []}
