"""gRPC server of the gateway: what holds for HTTP requests holds for its calls."""

import asyncio
import json
import logging
import re
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from babelgate.adapters.kit.server import heartbeat
from babelgate.gateway import demo
from tests.authority import Authority
from tests.gateway.command import Served, babelgate, bound_socket, served
from tests.gateway.hubs import eventually
from tests.postgres import empty, url_of
from tests.rpc import HELLO, RpcClient, as_json, calling, reason_of
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS: Final = {"alice": "alice-key", "bob": "bob-key"}
GATE: Final = asyncio.Event()
BOUND: Final = 30.0


async def gated(text: str) -> AsyncGenerator[str]:
    yield "first"
    await GATE.wait()
    yield " second"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {"echo": demo.echo, "gated": gated, "ask": demo.ask}
    async with running(tmp_path_factory.mktemp("rpc"), agents, default_agent="echo", serves_grpc=True) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def client(gateway: Running) -> AsyncGenerator[RpcClient]:
    async with calling(address_of(gateway), "gated") as found:
        GATE.clear()
        yield found


def address_of(gateway: Running) -> str:
    assert gateway.settings.grpc.listen is not None
    return gateway.settings.grpc.listen


async def card_of(gateway: Running, **headers: str) -> Any:
    return (await gateway.http.get("/a2a/echo/.well-known/agent-card.json", headers=headers)).json()


async def test_the_card_lists_grpc_third_with_the_tenant(gateway: Running) -> None:
    listed = (await card_of(gateway, **{"A2A-Version": "1.0"}))["supportedInterfaces"]
    assert [each["protocolBinding"] for each in listed] == ["JSONRPC", "HTTP+JSON", "GRPC", "JSONRPC", "HTTP+JSON"]
    assert listed[2] == {
        "url": address_of(gateway),
        "protocolBinding": "GRPC",
        "protocolVersion": "1.0",
        "tenant": "echo",
    }
    assert "GRPC" not in str(await card_of(gateway, **{"A2A-Version": "0.3"}))


async def test_a_call_without_a_tenant_reaches_the_default_agent(gateway: Running) -> None:
    async with calling(address_of(gateway)) as client:
        task = (await client.call("SendMessage", **HELLO))["task"]
    assert task["artifacts"][0]["parts"] == [{"text": "Hello there"}]


async def test_integers_of_callers_stay_integers(gateway: Running) -> None:
    data = {"small": 42, "large": 2**53, "half": 1.5, "none": None}
    async with calling(address_of(gateway), "echo") as client:
        message = {**HELLO["message"], "parts": [{"data": data}]}
        sent = (await client.call("SendMessage", message=message))["task"]
    response = await gateway.http.get(f"/a2a/echo/tasks/{sent['id']}", headers={"A2A-Version": "1.0"})
    assert response.json()["history"][0]["parts"] == [{"data": data}]
    assert re.search(r'"small":42[,}]', response.text)


@pytest.mark.parametrize(
    ("method", "request_", "code", "reason"),
    [
        ("GetTask", {"id": "unknown"}, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("SubscribeToTask", {"id": "unknown"}, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("SendMessage", {}, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GetTask", {"tenant": "nobody", "id": "1"}, "NOT_FOUND", "NOT_FOUND"),
        ("GetTask", {"tenant": "../admin", "id": "1"}, "NOT_FOUND", "NOT_FOUND"),
        ("ListTasks", {"pageSize": 101}, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ("GetExtendedAgentCard", {}, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        ("GetTask", {"id": "1", "metadata": [("a2a-version", "99.0")]}, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
        ("GetTask", {"id": "1", "metadata": [("a2a-version", "0.3")]}, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    ],
)
async def test_errors_have_the_status_and_reason_of_the_specification(
    client: RpcClient, method: str, request_: dict[str, Any], code: str, reason: str
) -> None:
    assert await client.refused(method, **request_) == (code, reason)


async def test_bytes_that_are_no_message_are_invalid(client: RpcClient) -> None:
    start = client.channel.unary_unary("/lf.a2a.v1.A2AService/GetTask")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await start(b"\xff\xff\xff")
    assert (caught.value.code().name, reason_of(caught.value)) == ("INVALID_ARGUMENT", "INVALID_PARAMS")


async def test_unknown_methods_are_unimplemented(client: RpcClient) -> None:
    start = client.channel.unary_unary("/lf.a2a.v1.A2AService/Other")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await start(b"")
    assert caught.value.code().name == "UNIMPLEMENTED"


async def first_task(events: AsyncGenerator[Any]) -> str:
    return (await anext(events))["task"]["id"]


async def last_state(events: AsyncGenerator[Any]) -> str:
    """Read a stream to its end, and return the last state in it."""
    async with asyncio.timeout(BOUND):
        return [each async for each in events][-1]["statusUpdate"]["status"]["state"]


async def test_a_lost_connection_does_not_cancel_its_run(gateway: Running, client: RpcClient) -> None:
    async with calling(address_of(gateway), "gated") as other:
        task_id = await first_task(other.stream("SendStreamingMessage", **HELLO))
    following = client.stream("SubscribeToTask", id=task_id)
    assert (await anext(following))["task"]["status"]["state"] == "TASK_STATE_WORKING"
    GATE.set()
    assert await last_state(following) == "TASK_STATE_COMPLETED"


async def test_a_deadline_ends_the_call_and_not_the_run(client: RpcClient) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.call("SendMessage", **HELLO, seconds=0.3)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    (task,) = (await client.call("ListTasks", status="TASK_STATE_WORKING"))["tasks"]
    following = client.stream("SubscribeToTask", id=task["id"])
    await first_task(following)
    GATE.set()
    assert await last_state(following) == "TASK_STATE_COMPLETED"


async def test_a_canceled_task_ends_its_streams(client: RpcClient) -> None:
    streamed = client.stream("SendStreamingMessage", **HELLO)
    task_id = await first_task(streamed)
    assert (await client.call("CancelTask", id=task_id))["status"]["state"] == "TASK_STATE_CANCELED"
    assert await last_state(streamed) == "TASK_STATE_CANCELED"
    assert await client.refused("CancelTask", id=task_id) == ("FAILED_PRECONDITION", "TASK_NOT_CANCELABLE")


async def test_responses_have_the_ids_of_the_run(client: RpcClient) -> None:
    GATE.set()
    call = client.open("SendMessage", **HELLO)
    headers = dict(await call.initial_metadata())
    (task,) = [as_json(each)["task"] async for each in call]
    assert headers["babelgate-task"] == task["id"]
    assert not {"content-type", "content-length", "connection"} & set(headers)


async def test_each_call_is_logged_with_its_path(client: RpcClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "babelgate.request"):
        await client.refused("GetTask", id="unknown")
    (line,) = (each.getMessage() for each in caplog.records if each.name == "babelgate.request")
    assert " POST /lf.a2a.v1.A2AService/GetTask 200 " in line


# Credentials and limits


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    folder = tmp_path_factory.mktemp("keyed")
    settings: dict[str, Any] = {"keys": KEYS, "limits": {"body": 100_000, "rate": [{"per": "owner", "runs": 3}]}}
    async with running(folder, {"echo": demo.echo}, serves_grpc=True, **settings) as served:
        yield served


async def test_calls_need_a_key_and_see_only_their_tasks(keyed: Running) -> None:
    async with calling(address_of(keyed), "echo") as client:
        assert await client.refused("SendMessage", **HELLO) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
        wrong = [("authorization", "Bearer nobody-key")]
        assert await client.refused("ListTasks", metadata=wrong) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
        old = [("a2a-version", "0.3")]
        assert (await client.refused("ListTasks", metadata=old))[0] == "UNAUTHENTICATED"
        alice, bob = [("authorization", "Bearer alice-key")], [("x-api-key", "bob-key")]
        task = (await client.call("SendMessage", **HELLO, metadata=alice))["task"]
        assert (await client.call("GetTask", id=task["id"], metadata=alice))["id"] == task["id"]
        assert await client.refused("GetTask", id=task["id"], metadata=bob) == ("NOT_FOUND", "TASK_NOT_FOUND")
        card = await client.call("GetExtendedAgentCard", metadata=bob)
        assert {each["protocolBinding"] for each in card["supportedInterfaces"]} >= {"GRPC"}


async def test_limits_of_http_hold_for_calls(keyed: Running) -> None:
    bob = [("x-api-key", "bob-key")]
    async with calling(address_of(keyed), "echo") as client:
        long = {"message": {**HELLO["message"], "parts": [{"text": "x" * 200_000}]}}
        assert (await client.refused("SendMessage", **long, metadata=bob))[0] == "RESOURCE_EXHAUSTED"
        quoted = {"message": {**HELLO["message"], "parts": [{"text": '"' * 60_000}]}}  # twice as long as JSON
        assert await client.refused("SendMessage", **quoted, metadata=bob) == ("INVALID_ARGUMENT", "TOO_LARGE")
        for _ in range(3):
            await client.call("SendMessage", **HELLO, metadata=bob)
        assert await client.refused("SendMessage", **HELLO, metadata=bob) == ("RESOURCE_EXHAUSTED", "LIMITED")


async def test_a_stopping_gateway_ends_streams_as_unavailable(tmp_path: Path) -> None:
    GATE.clear()
    async with (
        running(tmp_path, {"gated": gated}, serves_grpc=True) as gateway,
        calling(address_of(gateway), "gated") as client,
    ):
        streamed = client.stream("SendStreamingMessage", **HELLO)
        await first_task(streamed)
        gateway.hub.close_readers()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await last_state(streamed)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def large(text: str) -> AsyncGenerator[str]:
    for _ in range(24):
        yield "x" * 256 * 1024


async def test_a_client_that_reads_nothing_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Check that the stream waits for the client, so that its events do not fill the memory. The run does not wait."""
    monkeypatch.setattr(heartbeat, "SEND_TIMEOUT", 2.0)
    caplog.set_level(logging.INFO, "babelgate.request")
    async with (
        running(tmp_path, {"large": large}, serves_grpc=True) as gateway,
        calling(address_of(gateway), "large") as client,
    ):
        call = client.open("SendStreamingMessage", **HELLO)
        await eventually(lambda: any("SendStreamingMessage" in line for line in caplog.messages))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        (task,) = (await client.call("ListTasks", historyLength=0))["tasks"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"


# The whole process

PATIENT: Final = """
import asyncio, pathlib

async def patient(text: str):
    while not pathlib.Path(text).exists():
        await asyncio.sleep(0.01)
    yield "ended"
"""


def serving_grpc(folder: Path, **settings: Any) -> Path:
    configured: dict[str, Any] = {"grpc": {"listen": "127.0.0.1:0"}, **settings}
    (folder / "babelgate.yaml").write_text(json.dumps(configured), encoding="utf-8")
    return folder


def address_in(gateway: Served) -> str:
    """Return the address in the log line of the gRPC server."""
    return gateway.logged("gRPC served").partition("address=")[2].split()[0]


async def test_an_occupied_port_names_the_setting(tmp_path: Path) -> None:
    with bound_socket() as occupied:
        occupied.listen()
        listen = f"127.0.0.1:{occupied.getsockname()[1]}"
        ended = babelgate(tmp_path, "serve", "--port", "0", BABELGATE_GRPC__LISTEN=listen)
    assert ended.returncode == 1
    assert f"grpc.listen: cannot listen on {listen}: Address already in use" in ended.stderr


async def test_a_stopped_gateway_completes_the_calls_of_active_runs(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(PATIENT)
    folder = serving_grpc(tmp_path, agents={"patient": {"python": "waiting:patient"}})
    with served(folder, BABELGATE_SHUTDOWN__GRACE="60") as gateway:
        address = address_in(gateway)
        assert any(f"A2A 1.0 at {address}" in line for line in gateway.lines)
        async with calling(address, "patient") as client:
            message = {**HELLO["message"], "parts": [{"text": str(tmp_path / "go")}]}
            streamed = client.stream("SendStreamingMessage", message=message)
            await first_task(streamed)
            gateway.process.send_signal(signal.SIGTERM)
            (tmp_path / "go").touch()
            assert await last_state(streamed) == "TASK_STATE_COMPLETED"
        assert await asyncio.to_thread(gateway.process.wait, BOUND) == 0


async def test_all_workers_share_the_grpc_port(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    folder = serving_grpc(tmp_path, workers=2, database=url_of(postgres_tables))
    with served(folder) as gateway:
        address, second = address_in(gateway), address_in(gateway)
        assert address == second
        task_ids: list[str] = []
        for _ in range(8):
            async with calling(address, "echo") as client:
                task_ids.append((await client.call("SendMessage", **HELLO))["task"]["id"])
                assert (await client.call("GetTask", id=task_ids[0]))["id"] == task_ids[0]


async def test_tls_of_http_holds_for_grpc(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, alice = authority.issue("server", "127.0.0.1"), authority.issue("alice", "alice@example.com")
    tls = {**{name: str(path) for name, path in pair._asdict().items()}, "client_ca": str(authority.path)}
    with served(serving_grpc(tmp_path, tls={**tls, "client": "required"})) as gateway:
        address = address_in(gateway)
        roots = authority.certificate
        identified = grpc.ssl_channel_credentials(roots, alice.key.read_bytes(), alice.cert.read_bytes())
        async with calling(address, "echo", identified) as client:
            task = (await client.call("SendMessage", **HELLO))["task"]
            assert (await client.call("GetTask", id=task["id"]))["id"] == task["id"]
        assert " owner=mtls:alice@example.com" in gateway.logged("GetTask")
        for refused in (grpc.ssl_channel_credentials(roots), None):
            async with calling(address, "echo", refused) as client:
                assert (await client.refused("ListTasks"))[0] == "UNAVAILABLE"
        swapped = authority.issue("server", "127.0.0.1")  # the files of the first one
        gateway.process.send_signal(signal.SIGHUP)
        gateway.logged("gRPC served")
        async with calling(address, "echo", identified) as client:
            assert (await client.call("GetTask", id=task["id"]))["id"] == task["id"]
        assert swapped.cert == pair.cert
