"""Disturbed connections: each run ends, no part of the output is lost in the middle or repeated, and the agent starts
once at most.
"""

import asyncio
import random
import re
from typing import Final

import pytest

from tests.faults.proxy import Cut, HalfAnswered, HalfAsked, Instead, Slow, Stall, Trouble, status
from tests.faults.stage import BOUND, REATTACHING, WIRES, Stage, keeps_the_laws, serves, words_of
from tests.gateway.log_capture import capture_log

pytestmark = pytest.mark.asyncio(loop_scope="module")


def sse(*data: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return head + b"".join(b"data: " + each + b"\n\n" for each in data)


def json(body: bytes, *headers: bytes) -> bytes:
    lines = (b"HTTP/1.1 200 OK", b"Content-Type: application/json", b"Connection: close", *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


NOISE: Final = random.Random(1).randbytes(300)

TROUBLES: Final[dict[str, Trouble]] = {
    "a FIN instead of an answer": Cut(0),
    "an RST instead of an answer": Cut(0, reset=True),
    "a FIN in the head of the answer": Cut(25),
    "an RST in the head of the answer": Cut(25, reset=True),
    "a FIN behind the head of the answer": Cut(b"\r\n\r\n"),
    "500 before the agent": status(500),
    "502 before the agent": status(502),
    "503 before the agent": status(503),
    "503 before the agent, to be tried later": status(503, retry_after=7),
    "504 before the agent": status(504),
    "429 before the agent, to be tried later": status(429, retry_after=7),
    "500 behind the agent": status(500, asks=True),
    "502 behind the agent": status(502, asks=True),
    "503 behind the agent": status(503, asks=True, retry_after=7),
    "504 behind the agent": status(504, asks=True),
    "noise that is no HTTP": Instead(NOISE),
    "noise that is no HTTP, behind the agent": Instead(NOISE, asks=True),
    "an empty answer": Instead(json(b"")),
    "a page": Instead(json(b"<html>hello</html>").replace(b"application/json", b"text/html")),
    "JSON of another kind": Instead(json(b'{"hello": [1, 2, 3]}')),
    "an error as if it were the answer": Instead(json(b'{"error": {"code": -32603, "message": "no"}}')),
    "JSON that is no object": Instead(json(b"[]")),
    "JSON that breaks off": Instead(json(b'{"hello": [1, 2')),
    "JSON with noise in it": Instead(json(b'{"hello": "' + NOISE.replace(b'"', b"") + b'"}')),
    "a stream of noise": Instead(sse(NOISE.replace(b"\n", b"").replace(b"\r", b""))),
    "a stream of nothing": Instead(sse()),
    "a stream of JSON of another kind": Instead(sse(b'{"hello": 1}', b"[]", b"null", b'"x"')),
    "a compressed answer that is not": Instead(json(NOISE, b"Content-Encoding: gzip")),
    "chunks of a length that is none": Instead(json(b"zz\r\nhello\r\n", b"Transfer-Encoding: chunked")),
    "a redirect": Instead(json(b"", b"Location: http://127.0.0.1:9/").replace(b"200 OK", b"307 Elsewhere")),
    "a switch of protocols": Instead(json(b"").replace(b"200 OK", b"101 Switching Protocols")),
    "a half-closed request": HalfAsked(),
    "a half-closed answer": HalfAnswered(b"\r\n\r\n"),
}
"""Disturbances of the request that starts the agent. The run may succeed or fail."""

SILENCES: Final = (Stall(0, asks=False), Stall(0), Stall(25), Stall(b"\r\n\r\n"))
"""Silence before the request reaches the server, and before, in and after the head of the response."""


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_run_ends_despite_a_disturbed_first_request(stage: Stage, wire: str, trouble: str) -> None:
    agent, text = f"{wire}.tell", stage.text()
    stage.proxy(wire).befall(WIRES[wire].starts, TROUBLES[trouble])
    with capture_log() as log:
        found = await stage.run(agent, text)
        assert stage.proxy(wire).struck.is_set()
        await keeps_the_laws(stage, found, text)
        if "before the agent" in trouble:
            assert stage.started(text) == 0
            assert found.run.fault is not None
            later = 7 if "to be tried later" in trouble else None
            assert found.run.fault.details.get("retry_after") == later
        await serves(stage, agent)
    assert log.errors == []
    assert "Traceback" not in log.text


@pytest.mark.parametrize("wire", WIRES)
async def test_a_silent_server_times_out_without_blocking_others(stage: Stage, wire: str) -> None:
    proxy, texts = stage.proxy(wire), [stage.text() for _ in SILENCES]
    proxy.befall(WIRES[wire].starts, *SILENCES)
    with capture_log() as log:
        receipts = [await stage.submit(f"{wire}.tell.hasty", text) for text in texts]
        async with asyncio.timeout(BOUND):
            await proxy.struck.wait()
        assert (await stage.run("local", "Hello")).text == "Hello"
        for text, receipt in zip(texts, receipts, strict=True):
            found = await stage.ended(receipt)
            await keeps_the_laws(stage, found, text)
            assert found.run.fault is not None
            assert found.run.fault.code == "agent_timeout"
        await serves(stage, f"{wire}.tell.hasty")
    assert log.errors == []


@pytest.mark.parametrize("wire", WIRES)
async def test_a_head_that_arrives_byte_by_byte_is_accepted(stage: Stage, wire: str) -> None:
    text = stage.text()
    stage.proxy(wire).befall(WIRES[wire].starts, Slow())
    found = await stage.run(f"{wire}.tell", text)
    assert (found.run.status, found.text) == ("success", words_of(text)), found.run.fault


async def size_of(stage: Stage, wire: str) -> int:
    """Return the size of the response to the request that starts the agent, in bytes."""
    await serves(stage, f"{wire}.tell")
    starts = re.compile(WIRES[wire].starts, re.MULTILINE | re.DOTALL)
    return next(len(link.passed) for link in stage.proxy(wire).links if starts.search(link.request))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("wire", WIRES)
async def test_a_cut_response_loses_and_repeats_nothing(stage: Stage, wire: str, seed: int) -> None:
    chance = random.Random(seed)
    at = chance.randrange(await size_of(stage, wire))
    cut = HalfAnswered(at) if seed % 3 == 0 else Cut(at, reset=seed % 3 == 1)
    stage.reset()
    text = stage.text()
    proxy = stage.proxy(wire)
    proxy.befall(WIRES[wire].starts, cut)
    with capture_log() as log:
        found = await stage.run(f"{wire}.tell", text)
        await keeps_the_laws(stage, found, text)
    assert proxy.struck.is_set()
    if wire in REATTACHING and found.run.upstream.get("run", found.run.upstream.get("task")):
        assert found.ended_well, f"cut after {at} bytes: {found.run.fault}"
    assert log.errors == []
    await serves(stage, f"{wire}.tell")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.usefixtures("hurried")
async def test_every_run_ends_despite_random_disturbances(stage: Stage, wire: str, seed: int) -> None:
    """Disturb random requests of several concurrent runs."""
    chance, proxy = random.Random(seed), stage.proxy(wire)
    # Leave out valid JSON of another kind: in a later look at a run, it counts as a state like any other.
    unambiguous = [trouble for name, trouble in TROUBLES.items() if name != "JSON of another kind"]
    troubles = [*unambiguous, Slow(), Stall(0), Cut(300), Cut(700, reset=True), HalfAnswered(500), Stall(900)]
    proxy.luck = lambda: chance.choice(troubles) if chance.random() < 0.3 else None
    texts = [stage.text() for _ in range(6)]
    with capture_log() as log:
        receipts = [await stage.submit(f"{wire}.tell.unlucky", text) for text in texts]
        for text, receipt in zip(texts, receipts, strict=True):
            await keeps_the_laws(stage, await stage.ended(receipt), text)
    assert log.errors == []
