"""The server of the Agent Client Protocol: sessions, turns, questions, cancels, and errors."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from babelgate.adapters.agent_client.server import turns
from babelgate.canonical import Ask, Invocation, Scope, ToolCall
from babelgate.gateway import demo
from tests.adapters.agent_client.editor import Answerer, Editor, RpcError, Wire, choose, editing, own, text_of
from tests.gateway.conversing import connected, refusal
from tests.gateway.owning import ALICE, BOB
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER: Final = "default"
ALICE_HEADERS: Final = {"X-Api-Key": ALICE}
GATE: Final = asyncio.Semaphore(0)


async def recall(call: Invocation) -> str:
    """Return the texts of the conversation."""
    return " | ".join(message.text for message in (*call.history, *call.messages))


async def inspect(call: Invocation) -> str:
    """Return the last part of the input as JSON."""
    members = {name: value for name, value in call.messages[-1].parts[-1].members().items() if value is not None}
    return json.dumps(members, default=str)


async def gated(text: str) -> AsyncGenerator[str]:
    """Yield one word, wait until the test opens the gate, and yield another."""
    yield "first"
    await GATE.acquire()
    yield " second"


SIZES: Final = (1, 0, 2, 20, 125, 126, 40_000, 65_535, 65_536, 100_000, 3)
"""Lengths of texts around the limits of the three forms of a WebSocket frame (RFC 6455, 5.2)."""


async def sizes(text: str) -> AsyncGenerator[str]:
    """Yield texts of different sizes, without a pause."""
    for number, size in enumerate(SIZES):
        yield "äbcdefghijk"[number] * size


async def mail(text: str) -> AsyncGenerator[Ask | ToolCall | str, Any]:
    """Use a tool, ask for an approval, and answer."""
    yield ToolCall("look_up", {"name": text}, output="x@example.com")
    approved = yield Ask("Send it?", kind="approval", value={"to": "x"})
    yield f"Sent: {approved}."


async def colors(text: str) -> AsyncGenerator[list[Ask] | str, Any]:
    """Ask two questions at once."""
    color, name = yield [Ask("Which?", schema={"enum": ["red", "blue"]}), Ask("Name?", schema={"type": "string"})]
    yield f"{name} is {color}."


AGENTS: Final[dict[str, object]] = {
    **{name: getattr(demo, name) for name in ("echo", "stream", "ask", "fail", "json", "files", "approve")},
    **{each.__name__: each for each in (recall, inspect, gated, sizes, mail, colors)},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("agent-client"), AGENTS) as found:
        yield found


@asynccontextmanager
async def session(
    gateway: Running, agent: str, answerer: Answerer | None = None, **capabilities: Any
) -> AsyncGenerator[tuple[Editor, str]]:
    """Open a connection with a new session."""
    async with editing(gateway.url, agent, answerer) as editor:
        await editor.initialize(**capabilities)
        yield editor, await editor.new_session()


FORMS: Final[Wire] = {"elicitation": {"form": {}}}


def fill(**content: Any) -> Answerer:
    """Return an answerer that fills in every form, and allows everything else."""

    def answer(method: str, params: Wire) -> Wire | None:
        if method == "elicitation/create":
            return {"action": "accept", "content": content}
        return choose("allow")(method, params)

    return answer


# Connection


@pytest.mark.parametrize("path", ["/agent-client/echo", "/agent/echo/agent-client"])
async def test_both_paths_lead_to_the_agent(gateway: Running, path: str) -> None:
    async with connected(gateway.url, path) as connection:
        editor = Editor(connection)
        answer = await editor.initialize()
        assert answer["agentInfo"]["title"] == "echo"
        assert answer["agentCapabilities"]["sessionCapabilities"] == {
            "list": {},
            "resume": {},
            "close": {},
            "delete": {},
        }


async def test_unknown_version_is_answered_with_version_1(gateway: Running) -> None:
    async with editing(gateway.url, "echo") as editor:
        assert (await editor.call("initialize", protocolVersion=65535))["protocolVersion"] == 1


async def test_unknown_agent_closes_the_connection(gateway: Running) -> None:
    async with editing(gateway.url, "nobody") as editor:
        with pytest.raises(ConnectionClosed) as caught:
            await editor.receive()
    assert caught.value.rcvd is not None and caught.value.rcvd.code == 1008


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ("{", -32700),
        ("[]", -32600),
        ("1", -32600),
        ('{"jsonrpc":"2.0","id":1.5,"method":"initialize"}', -32600),
        ('{"jsonrpc":"2.0","id":null,"method":"initialize","params":{}}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"nothing","params":{}}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"_nothing","params":{}}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"session/set_mode","params":{}}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"x","prompt":[]}}', -32002),
        ('{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"x","cwd":"/"}}', -32002),
        ('{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"cursor":"x"}}', -32602),
    ],
)
async def test_bad_message_is_answered_with_an_error(gateway: Running, raw: str, code: int) -> None:
    async with editing(gateway.url, "echo") as editor:
        await editor.connection.send(raw)
        message = await editor.receive()
        assert message["error"]["code"] == code
        assert (await editor.initialize())["protocolVersion"] == 1


@pytest.mark.parametrize(
    "message",
    [
        {"id": None, "error": {"code": -32700, "message": "?"}},
        {"id": "unknown", "result": {}},
        {"method": "_unknown", "params": {}},
        {"method": "session/cancel", "params": {"sessionId": "x"}},
        {"method": "session/cancel", "params": {}},
        {"method": "$/cancel_request", "params": {"requestId": 99}},
    ],
)
async def test_message_without_a_request_is_ignored(gateway: Running, message: Wire) -> None:
    async with editing(gateway.url, "echo") as editor:
        await editor.send(**message)
        assert (await editor.initialize())["protocolVersion"] == 1
        assert len(editor.messages) == 1


async def test_ids_keep_their_type(gateway: Running) -> None:
    async with editing(gateway.url, "echo") as editor:
        for request_id in ("a", 0, 7):
            await editor.send(id=request_id, method="session/list", params={})
            assert (await editor.receive())["id"] == request_id


# Turns


async def test_prompt_is_answered_after_its_updates(gateway: Running) -> None:
    async with session(gateway, "echo") as (editor, session_id):
        result = await editor.prompt(session_id, "Hello", label="x", traceparent="y")
        assert result["stopReason"] == "end_turn"
        assert editor.text == "Hello"
        ids = own(result)
        assert (await gateway.hub.reads.run(OWNER, ids["run"])).metadata == {"label": "x"}


async def test_session_keeps_the_conversation(gateway: Running) -> None:
    async with session(gateway, "recall") as (editor, session_id):
        await editor.prompt(session_id, "one")
        editor.take_updates()
        await editor.prompt(session_id, "two")
        assert editor.text == "one | one | two"


async def test_fault_is_an_error_with_its_code(gateway: Running) -> None:
    async with session(gateway, "fail") as (editor, session_id):
        with pytest.raises(RpcError) as caught:
            await editor.prompt(session_id, "x")
        assert (caught.value.code, caught.value.data["code"]) == (-32603, "agent_failed")


async def test_second_prompt_in_a_turn_is_rejected(gateway: Running) -> None:
    async with session(gateway, "gated") as (editor, session_id):
        first = await editor.start_prompt(session_id, "x")
        with pytest.raises(RpcError) as caught:
            await editor.prompt(session_id, "y")
        assert caught.value.code == -32600
        GATE.release()
        assert (await editor.wait(first))["stopReason"] == "end_turn"
        assert editor.text == "first second"


BLOCKS: Final[list[tuple[Wire, Wire]]] = [
    ({"type": "image", "data": "AAEC", "mimeType": "image/png", "uri": "file:///a/b.png"}, {"name": "b.png"}),
    ({"type": "audio", "data": "AAEC", "mimeType": "audio/wav"}, {"media_type": "audio/wav"}),
    ({"type": "resource", "resource": {"uri": "file:///a/c.txt", "text": "hi"}}, {"name": "c.txt", "size": 2}),
    ({"type": "resource", "resource": {"uri": "x:/d", "blob": "AAEC"}}, {"name": "d", "size": 3}),
    ({"type": "resource_link", "uri": "https://example.com/e.pdf", "name": "e"}, {"name": "e"}),
    ({"type": "resource_link", "uri": "file:///a/f.py", "name": "f.py"}, {"text": "[@f.py](file:///a/f.py)"}),
]


@pytest.mark.parametrize(("block", "expected"), BLOCKS)
async def test_block_is_a_part_of_the_input(gateway: Running, block: Wire, expected: Wire) -> None:
    async with session(gateway, "inspect") as (editor, session_id):
        await editor.prompt(session_id, block)
        part = json.loads(editor.text)
        assert {name: part.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "data": "!", "mimeType": "image/png"},
        {"type": "text"},
        {"type": "video"},
        {"type": "resource"},
        {"type": "resource", "resource": {"uri": "x:/y"}},
        {},
    ],
)
async def test_bad_block_is_rejected(gateway: Running, block: Wire) -> None:
    async with session(gateway, "echo") as (editor, session_id):
        with pytest.raises(RpcError) as caught:
            await editor.prompt(session_id, block)
        assert caught.value.code == -32602
        assert (await editor.prompt(session_id, "x"))["stopReason"] == "end_turn"


# Cancel


@pytest.mark.parametrize("how", ["session/cancel", "$/cancel_request", "session/close"])
async def test_cancel_ends_the_turn_with_a_result(gateway: Running, how: str) -> None:
    async with session(gateway, "gated") as (editor, session_id):
        prompt = await editor.start_prompt(session_id, "x")
        while editor.text != "first":
            await editor.receive()
        if how == "session/close":
            await editor.start(how, sessionId=session_id)
        else:
            await editor.send(method=how, params={"sessionId": session_id, "requestId": prompt})
        assert (await editor.wait(prompt))["stopReason"] == "cancelled"
        assert (await editor.call("session/resume", sessionId=session_id, cwd="/")) == {}


async def test_texts_of_all_sizes_arrive_whole_and_in_order(gateway: Running) -> None:
    async with session(gateway, "sizes") as (editor, session_id):
        await editor.prompt(session_id, "x")
        chunks = [each["content"]["text"] for each in editor.updates if "content" in each]
        expected = ["äbcdefghijk"[number] * size for number, size in enumerate(SIZES) if size]
        assert chunks == expected


async def test_cancel_right_after_a_prompt_cancels_it(gateway: Running) -> None:
    async with session(gateway, "gated") as (editor, session_id):
        prompt = await editor.start_prompt(session_id, "x")
        await editor.send(method="session/cancel", params={"sessionId": session_id})
        assert (await editor.wait(prompt))["stopReason"] == "cancelled"


async def test_cancel_withdraws_an_open_permission_request(gateway: Running) -> None:
    async with session(gateway, "mail") as (editor, session_id):
        prompt = await editor.start_prompt(session_id, "x")
        while "session/request_permission" not in [each.get("method") for each in editor.messages]:
            await editor.peek()
        await editor.send(method="session/cancel", params={"sessionId": session_id})
        assert (await editor.wait(prompt))["stopReason"] == "cancelled"


@pytest.mark.parametrize(("query", "state"), [("", "completed"), ("?on_disconnect=cancel", "cancelled")])
async def test_disconnect_cancels_only_if_requested(gateway: Running, query: str, state: str) -> None:
    async with editing(gateway.url, "gated", query=query) as editor:
        await editor.initialize()
        session_id = await editor.new_session()
        await editor.start_prompt(session_id, "x")
        while editor.text != "first":
            await editor.receive()
        task_id = next(own(each)["task"] for each in editor.updates if "task" in own(each))
    if not query:
        GATE.release()
    await until_state(gateway, task_id, state)


async def until_state(gateway: Running, task_id: str, state: str) -> None:
    """Wait until a task has a state."""
    task = await gateway.hub.reads.task(OWNER, task_id)
    async with asyncio.timeout(30), aclosing(gateway.hub.reads.follow(OWNER, Scope.task(task))) as batches:
        async for _ in batches:
            pass
    assert (await gateway.hub.reads.task(OWNER, task_id)).state == state


# Questions


@pytest.mark.parametrize(("option", "answer"), [("allow", True), ("reject", False)])
async def test_approval_is_a_permission_request(gateway: Running, option: str, answer: bool) -> None:
    async with session(gateway, "mail", choose(option)) as (editor, session_id):
        assert (await editor.prompt(session_id, "Ada"))["stopReason"] == "end_turn"
        request = editor.asked[0]["params"]
        assert [each["kind"] for each in request["options"]] == ["allow_once", "reject_once"]
        assert request["toolCall"]["title"] == "Send it?"
        assert request["toolCall"]["rawInput"] == {"to": "x"}
        calls = [each for each in editor.updates if each.get("toolCallId") == request["toolCall"]["toolCallId"]]
        assert [each["sessionUpdate"] for each in calls] == ["tool_call", "tool_call_update"]
        assert calls[1]["status"] == "completed"
        assert editor.text == f"Sent: {answer}."


async def test_several_questions_are_sent_together(gateway: Running) -> None:
    def answer(method: str, params: Wire) -> Wire | None:
        if method == "elicitation/create":
            assert params["requestedSchema"]["properties"] == {"answer": {"type": "string"}}
            return {"action": "accept", "content": {"answer": "Ada"}}
        return choose("1")(method, params)

    async with session(gateway, "colors", answer, **FORMS) as (editor, session_id):
        assert (await editor.prompt(session_id, "x"))["stopReason"] == "end_turn"
        assert editor.text == "Ada is blue."
        assert {each["method"] for each in editor.asked} == {"session/request_permission", "elicitation/create"}


async def test_question_without_forms_is_answered_by_the_next_prompt(gateway: Running) -> None:
    async with session(gateway, "ask") as (editor, session_id):
        result = await editor.prompt(session_id, "x")
        assert (result["stopReason"], len(own(result)["questions"])) == ("end_turn", 1)
        question = own(editor.take_updates()[-1])["question"]
        assert question["id"] == own(result)["questions"][0]
        answered = await editor.prompt(session_id, "Ada")
        assert own(answered)["task"] == own(result)["task"]
        assert "Ada" in editor.text


async def test_prompt_supersedes_a_question_that_was_dismissed(gateway: Running) -> None:
    async with session(gateway, "mail") as (editor, session_id):
        first = await editor.prompt(session_id, "Ada")
        assert first["stopReason"] == "end_turn" and own(first)["questions"]
        editor.answerer = choose("allow")
        second = await editor.prompt(session_id, "Bob")
        assert own(second)["task"] != own(first)["task"]
        assert editor.text.endswith("Sent: True.")


async def test_answer_of_another_caller_continues_the_turn(gateway: Running) -> None:
    async with session(gateway, "mail") as (editor, session_id), editing(gateway.url, "mail") as other:
        prompt = await editor.start_prompt(session_id, "Ada")
        while not any("question" in own(each) for each in editor.updates):
            await editor.peek()
        question = next(own(each)["question"] for each in editor.updates if "question" in own(each))
        await other.initialize()
        params = {"babelgate": {"answers": {question["id"]: True}}}
        assert (await other.prompt(session_id, **params))["stopReason"] == "end_turn"
        assert other.text == "Sent: True."
        assert (await editor.wait_silently(prompt))["stopReason"] == "end_turn"


# Sessions


async def test_load_repeats_the_conversation(gateway: Running) -> None:
    async with session(gateway, "mail", choose("allow")) as (editor, session_id):
        await editor.prompt(session_id, "Ada")
    async with editing(gateway.url, "mail") as again:
        await again.initialize()
        assert await again.call("session/load", sessionId=session_id, cwd="/work", mcpServers=[]) == {}
        assert text_of(again.updates, "user_message_chunk") == "AdaAllow"
        assert again.text == "Send it?Sent: True."
        kinds = [each["sessionUpdate"] for each in again.updates]
        assert kinds.index("tool_call") < kinds.index("tool_call_update")
        assert again.messages[-1].get("result") == {}
        again.messages.clear()
        assert await again.call("session/resume", sessionId=session_id, cwd="/work") == {}
        assert again.updates == []


async def test_load_shows_why_a_turn_failed(gateway: Running) -> None:
    async with session(gateway, "fail") as (editor, session_id):
        with pytest.raises(RpcError):
            await editor.prompt(session_id, "x")
        editor.messages.clear()
        await editor.call("session/load", sessionId=session_id, cwd="/")
        assert editor.text == "Failing.Error: RuntimeError: x"
        assert own(editor.updates[-1])["fault"]["code"] == "agent_failed"


async def test_list_has_the_sessions_of_a_directory(gateway: Running) -> None:
    async with editing(gateway.url, "recall") as editor:
        await editor.initialize()
        ids = [await editor.new_session("/listed") for _ in range(22)]
        await editor.prompt(ids[0], "the title of it")
        page = await editor.call("session/list", cwd="/listed")
        assert page["sessions"][0] | {"updatedAt": ""} == {
            "sessionId": ids[0],
            "cwd": "/listed",
            "title": "the title of it",
            "updatedAt": "",
        }
        rest = await editor.call("session/list", cwd="/listed", cursor=page["nextCursor"])
        assert "nextCursor" not in rest
        assert {each["sessionId"] for each in (*page["sessions"], *rest["sessions"])} == set(ids)
        assert await editor.call("session/list", cwd="/nowhere") == {"sessions": []}


async def test_deleted_session_is_not_found(gateway: Running) -> None:
    async with session(gateway, "echo") as (editor, session_id):
        for _ in range(2):
            assert await editor.call("session/delete", sessionId=session_id) == {}
        with pytest.raises(RpcError) as caught:
            await editor.prompt(session_id, "x")
        assert caught.value.code == -32002


async def test_session_is_a_thread_of_every_protocol(gateway: Running) -> None:
    body = {"agent_name": "recall", "input": [{"parts": [{"content": "over another", "content_type": "text/plain"}]}]}
    response = await gateway.http.post("/acp/runs", json={**body, "mode": "sync"})
    thread_id = response.headers["babelgate-thread"]
    async with editing(gateway.url, "recall") as editor:
        await editor.initialize()
        assert thread_id in [each["sessionId"] for each in (await editor.call("session/list"))["sessions"]]
        await editor.prompt(thread_id, "two")
        assert editor.text.endswith("| two") and "over another" in editor.text


# Reconnect


async def test_attach_repeats_a_turn_byte_for_byte(gateway: Running) -> None:
    async with session(gateway, "mail", choose("allow")) as (editor, session_id):
        result = await editor.prompt(session_id, "Ada", babelgate={"prompt": "p1"})
        updates = editor.take_updates()
        for skip in (0, 2):
            repeated = await editor.call("_babelgate/attach", sessionId=session_id, prompt="p1", skip=skip)
            assert repeated == result
            assert editor.take_updates() == updates[skip:]
        with pytest.raises(RpcError) as caught:
            await editor.call("_babelgate/attach", sessionId=session_id, prompt="p2")
        assert caught.value.code == -32002


async def test_attach_continues_an_active_turn(gateway: Running) -> None:
    async with session(gateway, "gated") as (editor, session_id):
        await editor.start_prompt(session_id, "x", babelgate={"prompt": "p"})
        while editor.text != "first":
            await editor.receive()
        count = len(editor.updates)
    async with editing(gateway.url, "gated") as again:
        await again.initialize()
        attached = await again.start("_babelgate/attach", sessionId=session_id, prompt="p", skip=count)
        GATE.release()
        assert (await again.wait(attached))["stopReason"] == "end_turn"
        assert again.text == " second"


async def test_attach_asks_an_open_question_again(gateway: Running) -> None:
    async with session(gateway, "mail") as (editor, session_id):
        await editor.prompt(session_id, "Ada")
        editor.answerer = choose("allow")
        assert (await editor.call("_babelgate/attach", sessionId=session_id))["stopReason"] == "end_turn"
        assert editor.text.endswith("Sent: True.")


async def test_attach_ends_where_another_prompt_answers(gateway: Running) -> None:
    async with session(gateway, "ask") as (editor, session_id):
        first = await editor.prompt(session_id, "x", babelgate={"prompt": "p1"})
        updates = editor.take_updates()
        await editor.prompt(session_id, "Ada", babelgate={"prompt": "p2"})
        editor.take_updates()
        repeated = await editor.call("_babelgate/attach", sessionId=session_id, prompt="p1")
        assert editor.take_updates() == updates
        assert repeated["stopReason"] == first["stopReason"]
        await editor.call("_babelgate/attach", sessionId=session_id, task=own(first)["task"])
        assert "Ada" in editor.text


@pytest.mark.parametrize("page", [1, 2, 50])
async def test_attach_begins_at_the_first_run_of_an_old_task(
    gateway: Running, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_RUNS", page)
    async with session(gateway, "ask") as (editor, session_id):
        task = own(await editor.prompt(session_id, "x"))["task"]
        await editor.prompt(session_id, "Ada")
        expected = editor.text
        await editor.prompt(session_id, "y")
        editor.take_updates()
        await editor.call("_babelgate/attach", sessionId=session_id, task=task)
        assert editor.text == expected


@pytest.mark.parametrize("members", [{"answers": ["x"]}, {"prompt": 1}, {"prompt": "x" * 201}])
async def test_bad_member_of_a_prompt_is_rejected(gateway: Running, members: Wire) -> None:
    async with session(gateway, "echo") as (editor, session_id):
        with pytest.raises(RpcError) as caught:
            await editor.prompt(session_id, "x", babelgate=members)
        assert caught.value.code == -32602


async def test_stop_of_the_gateway_closes_the_connection_of_a_turn(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS) as stopping, session(stopping, "gated") as (editor, session_id):
        await editor.start_prompt(session_id, "x")
        while editor.text != "first":
            await editor.receive()
        stopping.hub.close_readers()
        with pytest.raises(ConnectionClosed) as caught:
            await editor.receive()
        assert caught.value.rcvd is not None and caught.value.rcvd.code == 1012
        GATE.release()


# Callers


async def test_connection_needs_a_key_and_shows_only_its_owners_sessions(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS, keys={"alice": ALICE, "bob": BOB}) as guarded:
        assert (await refusal(guarded.url, "/agent-client/echo")).status_code == 401
        async with editing(guarded.url, "recall", additional_headers=ALICE_HEADERS) as alice:
            await alice.initialize()
            session_id = await alice.new_session()
            await alice.prompt(session_id, "a secret", babelgate={"prompt": "p"})
            task_id = next(own(each)["task"] for each in alice.updates if "task" in own(each))
        async with editing(guarded.url, "recall", additional_headers={"X-Api-Key": BOB}) as bob:
            await bob.initialize()
            assert await bob.call("session/list") == {"sessions": []}
            calls: list[tuple[str, Wire]] = [
                ("session/load", {"cwd": "/"}),
                ("session/resume", {"cwd": "/"}),
                ("session/close", {}),
                ("session/prompt", {"prompt": [{"type": "text", "text": "x"}]}),
                ("_babelgate/attach", {"prompt": "p"}),
                ("_babelgate/attach", {"task": task_id}),
            ]
            for method, params in calls:
                with pytest.raises(RpcError) as caught:
                    await bob.call(method, sessionId=session_id, **params)
                assert caught.value.code == -32002, method
            assert await bob.call("session/delete", sessionId=session_id) == {}
            attached = await bob.start("_babelgate/attach", sessionId=await bob.new_session(), task=task_id)
            with pytest.raises(RpcError) as caught:
                await bob.wait(attached)
            assert caught.value.code == -32002
        async with editing(guarded.url, "recall", additional_headers=ALICE_HEADERS) as again:
            await again.call("session/load", sessionId=session_id, cwd="/")
            assert "a secret" in again.text


async def test_page_of_a_foreign_origin_is_refused_despite_its_key(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS, keys={"alice": ALICE}) as guarded:
        headers = {**ALICE_HEADERS, "Origin": "https://evil.example"}
        response = await refusal(guarded.url, "/agent-client/echo", headers)
        assert response.status_code == 403
        assert response.json()["error"]["data"]["reason"] == "origin"
