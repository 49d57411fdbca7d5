"""WebSocket handshakes: who may open a connection, and on which paths.

The last part tests the server's answers to frames that reach no protocol: those that are too long, and those that are
not text.
"""

import json
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from tests.gateway.command import Served, served
from tests.gateway.conversing import PATHS, START, check_socket_works, connected, refusal, talking
from tests.gateway.hostile import BODIES, HEADERS, IDS, LIMIT, UNKNOWN
from tests.gateway.hubs import within
from tests.gateway.owning import ALICE
from tests.gateway.shape import check_error, check_reply
from tests.gateway.siege import dumped
from tests.gateway.valid import command
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

WITHOUT_A_KEY: Final[Sequence[Mapping[str, str]]] = (
    {},
    {"Authorization": "Bearer wrong-key-0123456789"},
    {"Authorization": f"Bearer {ALICE}x"},
    {"X-Api-Key": "alice"},
    {"Sec-WebSocket-Protocol": ALICE},
    {"Cookie": f"key={ALICE}"},
    {"Origin": "http://localhost:3000"},
)
FOREIGN: Final = ("https://evil.example", "null", "http://localhost.evil.example", "file://", "http://192.0.2.7")
AT: Final = PATHS[0].format(thread_id=UNKNOWN)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """URL of a gateway without API keys."""
    async with running(tmp_path_factory.mktemp("open")) as gateway:
        yield gateway.url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """URL of a gateway with one API key, Alice's."""
    async with running(tmp_path_factory.mktemp("guarded"), keys={"alice": ALICE}) as gateway:
        yield gateway.url


@pytest.fixture
def process(tmp_path: Path) -> Generator[Served]:
    """A gateway in its own process, started by the command."""
    with served(tmp_path, BABELGATE_LIMITS__BODY=str(LIMIT)) as process:
        yield process


# Callers


@pytest.mark.parametrize("path", PATHS)
async def test_without_a_key_the_handshake_is_401(guarded: str, path: str) -> None:
    for headers in WITHOUT_A_KEY:
        refused = await refusal(guarded, path.format(thread_id=UNKNOWN), headers)
        assert refused.status_code == 401, headers
        assert refused.headers["www-authenticate"] == "Bearer"
        check_error("agent-protocol" if "/agent-protocol" in path else "langgraph", refused)
    for headers in ({"Authorization": f"Bearer {ALICE}"}, {"X-Api-Key": ALICE}):
        async with talking(guarded, path.format(thread_id=UNKNOWN), additional_headers=headers) as socket:
            assert (await socket.tell("state.get"))["error"] == "no_such_run"


@pytest.mark.parametrize(
    "path", ["/", "/nope", "/acp/runs", "/threads/a/stream", "/threads/a/b", "/agent/nobody/threads/a/stream"]
)
async def test_without_a_key_every_path_is_401(guarded: str, path: str) -> None:
    assert (await refusal(guarded, path)).status_code == 401


async def test_a_path_that_needs_no_key_has_no_websocket(guarded: str) -> None:
    for path in ("/ok", "/healthz", "/acp/ping", "/a2a/echo/.well-known/agent-card.json"):
        assert (await refusal(guarded, path)).status_code == 403


@pytest.mark.parametrize("origin", FOREIGN)
async def test_a_page_of_a_foreign_origin_is_refused(url: str, origin: str) -> None:
    """Check the origin in the handshake: browsers send no preflight request before they open a WebSocket."""
    for path in PATHS:
        refused = await refusal(url, path.format(thread_id=UNKNOWN), {"Origin": origin})
        assert refused.status_code == 401
        assert "access-control-allow-origin" not in refused.headers
        check_error("agent-protocol" if "/agent-protocol" in path else "langgraph", refused)


@pytest.mark.parametrize("path", PATHS)
async def test_a_handshake_for_a_foreign_host_is_refused(url: str, path: str) -> None:
    """Refuse pages that reach the gateway by DNS rebinding, with no origin, a true one or a forged one."""
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "http://localhost:3000"}):
        strange = url.replace("127.0.0.1", "evil.example")
        refused = await refusal(strange, path.format(thread_id=UNKNOWN), headers, host="127.0.0.1")
        assert refused.status_code == 403
        check_error("agent-protocol" if "/agent-protocol" in path else "langgraph", refused)


async def test_a_page_of_localhost_is_accepted(url: str) -> None:
    headers = {"Origin": "http://localhost:3000"}
    async with talking(url, PATHS[0].format(thread_id=uuid4()), additional_headers=headers) as socket:
        assert (await socket.tell("run.start", **START))["type"] == "success"


# Paths


@pytest.mark.parametrize("path", PATHS)
async def test_every_path_accepts_commands(url: str, path: str) -> None:
    await check_socket_works(url, path)


@pytest.mark.parametrize("name", list(IDS))
async def test_a_path_id_that_is_no_uuid_is_refused(url: str, name: str) -> None:
    for path in (PATHS[0], PATHS[3]):
        bad = path.format(thread_id=IDS[name])
        if IDS[name].lower() == UNKNOWN:
            async with talking(url, bad) as socket:
                assert (await socket.tell("state.get"))["error"] == "no_such_run"
        else:
            assert (await refusal(url, bad)).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nope",
        "/healthz",
        "/acp/runs",
        "/a2a/echo",
        "/ap/v1/agent/tasks",
        "/info",
        "/threads",
        "/threads/{id}",
        "/threads/{id}/commands",
        "/threads/{id}/streams",
        "/threads/{id}/stream/nope",
        "/threads/{id}/stream/events/nope",
        "/threads/{id}/runs/stream",
        "/threads/{id}/runs/{id}/stream",
        "/Threads/{id}/stream",
        "/agent-protocol",
        "/agent-protocol/agent-protocol/threads/{id}/stream",
        "/agent/echo",
        "/agent/echo/acp/runs",
    ],
)
async def test_a_path_without_a_websocket_is_refused(url: str, path: str) -> None:
    assert (await refusal(url, path.format(id=UNKNOWN))).status_code == 403


@pytest.mark.parametrize("prefix", ["/agent/nobody", "/agent/echo/agent/echo", "/agent/Echo", "/agent/%00"])
async def test_an_unknown_agent_is_not_found(url: str, prefix: str) -> None:
    refused = await refusal(url, prefix + AT)
    assert refused.status_code == 404
    check_error("langgraph" if prefix != "/agent/echo/agent/echo" else "own", refused)


@pytest.mark.parametrize("headers", [each for each in HEADERS if "Host" not in each], ids=str)
async def test_bad_headers_are_ignored(url: str, headers: Mapping[str, bytes]) -> None:
    sent = {name: value.decode("latin-1") for name, value in headers.items()}
    async with talking(url, AT, additional_headers=sent) as socket:
        assert check_reply(await socket.tell("state.get"))["error"] == "no_such_run"


# Server


async def test_a_refused_handshake_is_not_logged_as_an_error(process: Served) -> None:
    """Keep clients without a key from filling the log with errors."""
    await refusal(process.url, AT, {"Origin": "https://evil.example"})
    await refusal(process.url, f"/agent/nobody{AT}")
    await refusal(process.url, "/threads/x/stream")
    await refusal(process.url, "/nope")
    log = process.stop()
    assert "error" not in log.lower(), log
    assert "Traceback" not in log, log


@pytest.mark.parametrize("how", ["whole", "in pieces", "compressed"])
async def test_a_frame_over_the_limit_closes_only_that_connection(process: Served, how: str) -> None:
    fitting, larger = (dumped(command("state.get", {"x": "x" * size})).decode() for size in (LIMIT - 1_000, LIMIT))
    compression = "deflate" if how == "compressed" else None
    async with (
        talking(process.url, AT) as other,
        connected(process.url, AT, compression=compression) as connection,
    ):
        await connection.send(fitting)
        assert json.loads(await within(connection.recv(), "an answer"))["error"] == "no_such_run"
        with pytest.raises(ConnectionClosed) as caught:
            await connection.send([larger[: LIMIT // 2], larger[LIMIT // 2 :]] if how == "in pieces" else larger)
            await within(connection.recv(), "the end")
        # What was on its way when the server closed resets the connection, and may take the reason with it.
        assert caught.value.rcvd is None or caught.value.rcvd.code == CloseCode.MESSAGE_TOO_BIG
        assert (await other.tell("state.get"))["error"] == "no_such_run"
    await check_socket_works(process.url)
    assert "Traceback" not in process.stop()


@pytest.mark.parametrize("name", ["invalid UTF-8", "UTF-16"])
async def test_invalid_utf_8_closes_only_that_connection(process: Served, name: str) -> None:
    """Close the connection with the code 1007, as RFC 6455, section 8.1, requires."""
    async with talking(process.url, AT) as other, connected(process.url, AT) as connection:
        await connection.send(BODIES[name], text=True)
        with pytest.raises(ConnectionClosed) as caught:
            await within(connection.recv(), "the end")
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == CloseCode.INVALID_DATA
        assert (await other.tell("state.get"))["error"] == "no_such_run"
    await check_socket_works(process.url)
    assert "Traceback" not in process.stop()
