"""Resources, prompts, completion and subscriptions over a whole gateway. Both eras of MCP are tested: versions with a
handshake, and the stateless version 2026-07-28."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import AgentInfo, Ask, Invocation
from babelgate.canonical.agent import Skill
from babelgate.canonical.thread import Artifact
from tests.adapters.mcp.site import Client, Modern, Stream, Wire, answer_of, enter
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 30
KEYS: Final = {"alice": "alice-0123456789-key", "bob": "bob-0123456789-key"}
THREAD: Final = "5b0a4a52-7c9f-4c0e-9b55-0d6f2f3f6a01"
GATE: Final = asyncio.Event()


async def files(call: Invocation) -> AsyncGenerator[Artifact | str]:
    yield Artifact.of("notes.txt", "naïve")
    yield Artifact.of("dot.png", b"\x89PNG", "image/png")
    yield f"Two files for {call.text}."


async def steps(text: str) -> AsyncGenerator[str]:
    """Yield a word, wait until the test sets `GATE`, and yield another."""
    yield "one "
    await GATE.wait()
    yield "two"


async def page(call: Invocation) -> str:
    assert isinstance(call.data, dict)
    return f"Page {call.data['name']}."


async def many(call: Invocation) -> str:
    assert isinstance(call.data, dict)
    return f"Number {call.data['number']}."


async def greeting(call: Invocation) -> AsyncGenerator[Ask | str, Any]:
    name = yield Ask("Who is it for?")
    assert isinstance(call.data, dict)
    yield f"Greet {name} in {call.data['tone']}."


async def broken(text: str) -> str:
    raise RuntimeError("on purpose")


def described(agent: Any, properties: Wire | None = None, skills: tuple[Skill, ...] = (), **mcp: Any) -> Any:
    schemas = {} if properties is None else {"input": {"type": "object", "properties": properties}}
    agent.info = AgentInfo(name=agent.__name__, schemas=schemas, skills=skills, metadata={"mcp": mcp} if mcp else {})
    return agent


SKILL: Final = Skill(id="pack", name="Pack", description="Packs files.", examples=("Pack one", "Pack two", "Unpack"))
AGENTS: Final[dict[str, Any]] = {
    "files": described(files, skills=(SKILL,)),
    "steps": steps,
    "page": described(page, {"name": {"type": "string", "enum": ["home", "help"]}}, resource="docs://{name}"),
    "many": described(many, {"number": {"enum": [str(number) for number in range(120)]}}, resource="many://{number}"),
    "greeting": described(greeting, {"tone": {"type": "string", "enum": ["kind", "keen", "cool"]}}, prompt=True),
    "broken": described(broken, prompt=True),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("catalog"), AGENTS, keys=KEYS) as gateway:
        gateway.http.headers["X-Api-Key"] = KEYS["alice"]
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["2025-11-25", "2026-07-28"])
async def client(request: pytest.FixtureRequest, gateway: Running) -> Client:
    if request.param == "2026-07-28":
        return Modern(gateway.http)
    return (await enter(gateway.http))[0]


async def read(client: Client, uri: str) -> Wire:
    response = await client.ask("resources/read", {"uri": uri})
    assert "result" in response, response
    return response["result"]["contents"][0]


async def make_files(client: Client) -> Wire:
    return (await client.call("files", {"message": "Ada", "thread_id": THREAD}))["_meta"]["babelgate"]


async def test_a_run_and_its_thread_are_readable(client: Client) -> None:
    ids = await make_files(client)
    run = json.loads((await read(client, f"babelgate://runs/{ids['run_id']}"))["text"])
    assert (run["agent"], run["status"]) == ("files", "success")
    assert run["messages"][-1]["parts"] == [{"kind": "text", "text": "Two files for Ada."}]
    assert [each["name"] for each in run["artifacts"]] == ["notes.txt", "dot.png"]
    thread = json.loads((await read(client, run["thread"]))["text"])
    assert thread["thread_id"] == ids["thread_id"] == THREAD
    assert thread["runs"][-1] == {"uri": f"babelgate://runs/{ids['run_id']}", "agent": "files", "status": "success"}


async def test_artifacts_are_read_as_text_or_bytes(client: Client) -> None:
    ids = await make_files(client)
    run = json.loads((await read(client, f"babelgate://runs/{ids['run_id']}"))["text"])
    notes, dot = [await read(client, each["uri"]) for each in run["artifacts"]]
    assert (notes["text"], notes["mimeType"]) == ("naïve", "text/plain")
    assert (dot["blob"], dot["mimeType"]) == ("iVBORw==", "image/png")


async def test_pages_list_every_resource_once(client: Client) -> None:
    ids = await make_files(client)
    uris: list[str] = []
    params: Wire = {}
    while True:
        page = (await client.ask("resources/list", params))["result"]
        uris += [each["uri"] for each in page["resources"]]
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    assert {f"babelgate://threads/{THREAD}", f"babelgate://runs/{ids['run_id']}"} <= set(uris)
    assert sum(uri.startswith(f"babelgate://runs/{ids['run_id']}/artifacts/") for uri in uris) == 2
    assert len(uris) == len(set(uris))


@pytest.mark.parametrize("cursor", ["x", "runs.-1", "threads.", "runs.٣"])
async def test_an_unknown_cursor_is_an_error(client: Client, cursor: str) -> None:
    assert (await client.ask("resources/list", {"cursor": cursor}))["error"]["code"] == -32602


async def test_another_owner_sees_nothing(gateway: Running, client: Client) -> None:
    ids = await make_files(client)
    run = json.loads((await read(client, f"babelgate://runs/{ids['run_id']}"))["text"])
    other = Modern(gateway.http, headers={"X-Api-Key": KEYS["bob"]})
    uris = [f"babelgate://runs/{ids['run_id']}", f"babelgate://threads/{THREAD}", run["artifacts"][0]["uri"]]
    for uri in uris:
        unknown = uri.replace(ids["run_id"], "00000000-0000-4000-8000-000000000000").replace(THREAD, ids["task_id"])
        error, expected = [(await other.ask("resources/read", {"uri": each}))["error"] for each in (uri, unknown)]
        assert error == {**expected, "data": {"uri": uri}}
    listed = (await other.ask("resources/list"))["result"]["resources"]
    following = (await other.ask("resources/list", {"cursor": "runs.0"}))["result"]["resources"]
    assert [each["uri"] for each in (*listed, *following)] == []
    template = {"type": "ref/resource", "uri": "babelgate://runs/{run_id}"}
    completion = await other.ask("completion/complete", {"ref": template, "argument": {"name": "run_id", "value": ""}})
    assert completion["result"]["completion"]["values"] == []


@pytest.mark.parametrize("uri", ["babelgate://runs/x", "babelgate://files/00", "file:///etc/passwd", "docs://a/b", ""])
async def test_an_unknown_resource_is_an_error(client: Client, uri: str) -> None:
    error = (await client.ask("resources/read", {"uri": uri}))["error"]
    modern = isinstance(client, Modern)
    if uri or not modern:  # without a URI, the header of 2026-07-28 is missing
        assert (error["code"], error["data"]) == (-32602 if modern else -32002, {"uri": uri})


async def test_an_agent_can_be_a_resource(client: Client) -> None:
    templates = (await client.ask("resources/templates/list"))["result"]["resourceTemplates"]
    assert "docs://{name}" in [each["uriTemplate"] for each in templates]
    assert (await read(client, "docs://home"))["text"] == "Page home."
    tools = (await client.ask("tools/list"))["result"]["tools"]
    assert {each["name"] for each in tools} == {"files", "steps", "resume_run"}


async def test_variables_and_arguments_are_completed(client: Client) -> None:
    ids = await make_files(client)
    cases: list[tuple[Wire, str, str, list[str]]] = [
        ({"type": "ref/resource", "uri": "docs://{name}"}, "name", "he", ["help"]),
        ({"type": "ref/resource", "uri": "babelgate://threads/{thread_id}"}, "thread_id", THREAD[:8], [THREAD]),
        ({"type": "ref/resource", "uri": "babelgate://runs/{run_id}"}, "run_id", ids["run_id"], [ids["run_id"]]),
        ({"type": "ref/prompt", "name": "greeting"}, "tone", "k", ["kind", "keen"]),
        ({"type": "ref/prompt", "name": "files/pack"}, "message", "Pack", ["Pack one", "Pack two"]),
    ]
    for ref, name, value, expected in cases:
        params: Wire = {"ref": ref, "argument": {"name": name, "value": value}}
        result = (await client.ask("completion/complete", params))["result"]
        assert result["completion"]["values"] == expected, ref


async def test_completion_counts_the_values_that_it_leaves_out(client: Client) -> None:
    params: Wire = {
        "ref": {"type": "ref/resource", "uri": "many://{number}"},
        "argument": {"name": "number", "value": ""},
    }
    completion = (await client.ask("completion/complete", params))["result"]["completion"]
    assert (len(completion["values"]), completion["total"], completion["hasMore"]) == (100, 120, True)


async def test_examples_of_skills_are_prompts(client: Client) -> None:
    prompts = {each["name"]: each for each in (await client.ask("prompts/list"))["result"]["prompts"]}
    assert prompts.keys() == {"files/pack", "greeting", "broken"}
    for arguments, text in (({}, "Pack one"), ({"message": "Pack it"}, "Pack it")):
        result = (await client.ask("prompts/get", {"name": "files/pack", "arguments": arguments}))["result"]
        assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": text}}]
    error = (await client.ask("prompts/get", {"name": "files/pack", "arguments": {"x": "y"}}))["error"]
    assert error["code"] == -32602


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "greeting", "arguments": {"tone": "rude"}}),
        ("resources/read", {"uri": "docs://nowhere"}),
    ],
)
async def test_arguments_that_do_not_fit_are_invalid(client: Client, method: str, params: Wire) -> None:
    error = (await client.ask(method, params))["error"]
    assert (error["code"], error["message"][:13]) == (-32602, "The arguments")


async def test_the_fault_of_a_prompt_is_an_error(client: Client) -> None:
    error = (await client.ask("prompts/get", {"name": "broken", "arguments": {"message": "go"}}))["error"]
    assert (error["code"], error["message"]) == (-32603, "RuntimeError: on purpose")


async def test_a_question_that_cannot_be_answered_ends_the_prompt(client: Client) -> None:
    error = (await client.ask("prompts/get", {"name": "greeting", "arguments": {"tone": "kind"}}))["error"]
    assert (error["code"], error["message"]) == (-32603, "The agent asks a question, which this client cannot answer.")


async def test_a_prompt_asks_before_it_is_complete(gateway: Running) -> None:
    client = Modern(gateway.http, capabilities={"elicitation": {}})
    params: Wire = {"name": "greeting", "arguments": {"tone": "kind"}}
    first = (await client.ask("prompts/get", params))["result"]
    (key,) = first["inputRequests"]
    answer = {"action": "accept", "content": {"answer": "Ada"}}
    params |= {"requestState": first["requestState"], "inputResponses": {key: answer}}
    result = (await client.ask("prompts/get", params))["result"]
    assert result["messages"][0]["content"]["text"] == "Greet Ada in kind."


async def start_steps(gateway: Running) -> str:
    """Start a run of `steps`, which waits until the test sets `GATE`. Return its id."""
    client = Modern(gateway.http, capabilities={"extensions": {"io.modelcontextprotocol/tasks": {}}})
    result = await client.call("steps", {"message": "go"})
    return result["_meta"]["babelgate"]["run_id"]


async def test_a_listener_is_notified_of_events_of_a_run(gateway: Running) -> None:
    GATE.clear()
    run_id = await start_steps(gateway)
    client = Modern(gateway.http)
    uri = f"babelgate://runs/{run_id}"
    request = client.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}}, 7)
    notifications: list[Wire] = []
    async with asyncio.timeout(BOUND), gateway.http.stream(**request) as response:
        stream = Stream(response)
        while (message := await stream.next()) is not None:
            notifications.append(message)
            if message.get("method") == "notifications/subscriptions/acknowledged":
                GATE.set()
    methods = [each.get("method") for each in notifications]
    assert methods[:2] == ["notifications/subscriptions/acknowledged", "notifications/resources/updated"]
    assert notifications[1]["params"]["uri"] == uri
    assert notifications[-1]["id"] == 7
    run = json.loads((await read(client, uri))["text"])
    assert run["status"] == "success"


async def test_a_session_is_notified_of_events_of_a_run(gateway: Running) -> None:
    GATE.clear()
    run_id = await start_steps(gateway)
    uri = f"babelgate://runs/{run_id}"
    client, _ = await enter(gateway.http, elicitation={})
    headers = {**client.headers, "Accept": "text/event-stream"}
    async with asyncio.timeout(BOUND), gateway.http.stream("GET", "/mcp", headers=headers) as response:
        assert (await client.ask("resources/subscribe", {"uri": uri}))["result"] == {}
        GATE.set()
        message = await Stream(response).next()
    assert message is not None
    assert (message["method"], message["params"]["uri"]) == ("notifications/resources/updated", uri)
    assert (await client.ask("resources/unsubscribe", {"uri": uri}))["result"] == {}


async def test_only_sessions_can_subscribe(gateway: Running) -> None:
    client, response = await enter(gateway.http)
    capabilities = answer_of(response)["result"]["capabilities"]
    assert (await client.ask("resources/subscribe", {"uri": "docs://home"}))["error"]["code"] == -32601
    assert not capabilities["resources"].get("subscribe")


async def test_the_url_of_an_agent_shows_only_its_runs(gateway: Running) -> None:
    ids = await make_files(Modern(gateway.http))
    other = Modern(gateway.http, path="/agent/steps/mcp")
    error = (await other.ask("resources/read", {"uri": f"babelgate://runs/{ids['run_id']}"}))["error"]
    assert error["message"] == "Resource not found"
    error = (await other.ask("resources/read", {"uri": f"babelgate://threads/{THREAD}"}))["error"]
    assert error["message"] == "Resource not found"
