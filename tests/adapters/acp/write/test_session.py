"""Sessions: their history, and sessions on several servers."""

import json
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from litestar import Litestar, Request, Response, get

from babelgate.adapters.acp.write.session import SessionTranscript
from babelgate.canonical import Message, RunFilter, Scope
from babelgate.canonical.hub import StateUpdate
from tests.adapters.acp.conftest import recall
from tests.adapters.acp.site import UNKNOWN_ID, Site, message, opened, texts
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def history(site: Site, session_id: str) -> list[Any]:
    """Return the messages of a session, each fetched from its URL."""
    session = (await site.get(f"/sessions/{session_id}")).json()
    return [(await site.http.get(url)).json() for url in session["history"]]


def roles_and_texts(messages: list[Any]) -> list[tuple[str, str]]:
    return [(each["role"], text) for each, text in zip(messages, texts(messages), strict=True)]


async def test_a_run_without_a_session_gets_a_new_one(site: Site) -> None:
    first, second = await site.run("echo"), await site.run("echo")
    assert first["session_id"] != second["session_id"]


async def test_a_session_is_created_with_its_id_and_then_continued(site: Site) -> None:
    session_id = str(uuid4())
    for text in ("One", "Two"):
        assert (await site.run("echo", text, session_id=session_id))["session_id"] == session_id
    assert roles_and_texts(await history(site, session_id)) == [
        ("user", "One"),
        ("agent/echo", "One"),
        ("user", "Two"),
        ("agent/echo", "Two"),
    ]


async def test_both_paths_of_a_session_return_the_same(site: Site) -> None:
    """Check both: the OpenAPI has /session, but the SDK and all clients use /sessions."""
    run = await site.run("echo")
    plural, singular = [await site.get(f"/{path}/{run['session_id']}") for path in ("sessions", "session")]
    assert plural.json() == singular.json()
    assert (plural.json()["id"], plural.json()["state"]) == (run["session_id"], None)


async def test_history_urls_are_absolute_and_below_the_callers_path(site: Site) -> None:
    run = await site.run("echo")
    session = (await site.get(f"/sessions/{run['session_id']}")).json()
    assert all(url.startswith("http://127.0.0.1:8000/acp/resources/") for url in session["history"])
    below = (await site.http.get(f"/agent/echo/acp/sessions/{run['session_id']}")).json()
    assert all(url.startswith("http://127.0.0.1:8000/agent/echo/acp/resources/") for url in below["history"])
    assert (await site.http.get(below["history"][0])).json()["parts"][0]["content"] == "Hello"


async def test_failed_cancelled_and_awaiting_runs_record_no_messages(site: Site) -> None:
    session_id = str(uuid4())
    await site.run("fail", "Boom", session_id=session_id)
    run = await site.run("ask", session_id=session_id)
    assert await history(site, session_id) == []
    await site.http.post(f"/acp/runs/{run['run_id']}/cancel")
    assert await history(site, session_id) == []


async def test_a_cached_session_matches_its_records(site: Site) -> None:
    session_id = str(uuid4())

    async def read_history() -> list[str]:
        urls: list[str] = (await site.get(f"/sessions/{session_id}")).json()["history"]
        whole = SessionTranscript(session_id, base_url="http://127.0.0.1:8000", advertised=str)
        for record in await site.hub.reads.records("default", Scope(session_id)):
            whole.apply(record)
        assert urls == [entry.url for entry in whole.entries()]
        return urls

    await site.run("echo", "One", session_id=session_id)
    assert len(await read_history()) == 2
    asking = await site.run("ask", "Hi", session_id=session_id)
    assert len(await read_history()) == 2
    await site.resume(asking["run_id"], "Ada")
    assert len(await read_history()) == 5
    added = [Message.of(words, "user").replace(message_id=words) for words in ("a", "b")]
    for messages in (added, added[:1], [added[1].replace(extra={"acp": {"url": "http://elsewhere/1"}})]):
        await site.hub.update_state("default", StateUpdate(thread_id=session_id, messages=tuple(messages)))
        assert len(await read_history()) == 7
    assert (await read_history())[-1] == "http://elsewhere/1"
    runs = await (await site.hub.reads.runs("default", RunFilter(thread_id=session_id), limit=10)).all()
    await site.hub.remove_run("default", runs[0].run_id)
    assert len(await read_history()) == 4
    await site.run("echo", "Two", session_id=session_id)
    assert len(await read_history()) == 6


async def test_answers_are_recorded_with_the_completed_run(site: Site) -> None:
    run = await site.run("ask", "Hi")
    await site.resume(run["run_id"], "Ada")
    assert roles_and_texts(await history(site, run["session_id"])) == [
        ("user", "Hi"),
        ("user", "Ada"),
        ("agent/ask", "Hello, Ada."),
    ]


async def test_a_run_is_recorded_before_its_completion_is_visible(site: Site) -> None:
    for _ in range(10):
        run = await site.run("echo")
        assert len((await site.get(f"/sessions/{run['session_id']}")).json()["history"]) == 2


async def test_the_agent_receives_the_history_of_its_session(site: Site) -> None:
    session_id = str(uuid4())
    await site.run("echo", "One", session_id=session_id)
    run = await site.run("recall", "And?", session_id=session_id)
    assert texts(run["output"]) == ["user: One; agent: One"]


async def test_a_session_with_another_session_id_is_400(site: Site) -> None:
    session: dict[str, Any] = {"id": str(uuid4()), "history": []}
    answer = await site.create("echo", session=session, session_id=str(uuid4()))
    assert (answer.status_code, answer.json()) == (
        400,
        {"code": "invalid_input", "message": "Session ID mismatch", "data": None},
    )
    assert (await site.run("echo", session=session, session_id=session["id"]))["session_id"] == session["id"]


# Sessions on several servers


class Elsewhere:
    """Another server that stores the messages of sessions."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.answers: dict[str, bytes] = {}

    def app(self) -> Litestar:
        @get("/{name:path}")
        async def resource(request: Request[Any, Any, Any]) -> Response[Any]:
            name = request.url.path.strip("/")
            self.fetched.append(name)
            # The SDK's server sends resources without a Content-Type.
            return Response(self.answers[name], status_code=200 if name in self.answers else 404)

        return Litestar([resource], openapi_config=None)

    def store(self, name: str, **members: Any) -> None:
        self.answers[name] = json.dumps(members).encode()


@pytest_asyncio.fixture(loop_scope="module")
async def elsewhere() -> AsyncGenerator[tuple[Elsewhere, str]]:
    server = Elsewhere()
    server.store("1", role="user", parts=[{"content": "One"}])
    server.store("2", role="agent/other", parts=[{"content": "Uno"}])
    async with serving(server.app()) as url:
        yield server, url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reaching(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """Gateway that may fetch from this machine."""
    folder = tmp_path_factory.mktemp("reaching")
    async with opened(folder, {"recall": recall}, network={"allow": ["127.0.0.0/8"]}) as opened_site:
        yield opened_site


async def test_history_of_another_server_is_fetched_once_and_stored(
    reaching: Site, elsewhere: tuple[Elsewhere, str]
) -> None:
    server, url = elsewhere
    session = {"id": str(uuid4()), "history": [f"{url}/1", f"{url}/2"]}
    run = await reaching.run("recall", "And?", session=session)
    assert texts(run["output"]) == ["user: One; agent: Uno"]
    assert sorted(server.fetched) == ["1", "2"]
    stored = (await reaching.get(f"/sessions/{session['id']}")).json()
    assert stored["history"][:2] == session["history"]
    assert len(stored["history"]) == 4
    server.fetched.clear()
    again = await reaching.run("recall", "And now?", session=stored)
    assert server.fetched == []
    assert again["session_id"] == session["id"]
    assert texts(again["output"])[0].startswith("user: One; agent: Uno; user: And?; agent: ")


async def test_disallowed_addresses_are_not_fetched(site: Site, elsewhere: tuple[Elsewhere, str]) -> None:
    server, url = elsewhere
    for address in (f"{url}/1", "file:///etc/passwd", "http://169.254.169.254/latest", "nonsense"):
        answer = await site.create("echo", session={"id": str(uuid4()), "history": [address]})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), address
    assert server.fetched == []


async def test_a_fetched_history_entry_must_be_a_message(reaching: Site, elsewhere: tuple[Elsewhere, str]) -> None:
    server, url = elsewhere
    server.answers |= {"text": b"Hello", "role": b'{"role": "system", "parts": []}', "nan": b"NaN"}
    for name in ("text", "role", "nan"):
        answer = await reaching.create("echo", session={"id": str(uuid4()), "history": [f"{url}/{name}"]})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), name


async def test_gateway_urls_in_a_session_require_the_same_owner(site: Site) -> None:
    first = await site.run("echo", "One")
    stored = (await site.get(f"/sessions/{first['session_id']}")).json()
    run = await site.run("recall", "And?", session={"id": str(uuid4()), "history": stored["history"]})
    assert texts(run["output"]) == ["user: One; agent: One"]
    foreign = f"http://127.0.0.1:8000/acp/resources/{UNKNOWN_ID}.0"
    answer = await site.create("recall", session={"id": str(uuid4()), "history": [foreign]})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")


async def test_a_session_with_too_many_messages_is_refused(site: Site) -> None:
    session = {"id": str(uuid4()), "history": [f"http://127.0.0.1:1/{n}" for n in range(1001)]}
    assert (await site.create("echo", session=session)).status_code == 422


async def test_files_of_a_session_are_in_its_resources(site: Site) -> None:
    parts = [{"name": "note.txt", "content": "A note"}, {"content": "Text"}]
    run = (await site.post("/runs", {"agent_name": "files", "input": [{"role": "user", "parts": parts}]})).json()
    uploaded, returned = await history(site, run["session_id"])
    assert [part["content"] for part in uploaded["parts"]] == ["A note", "Text"]
    assert [part["name"] for part in returned["parts"]] == ["note.txt", "report.txt"]
    assert message("x")["role"] == uploaded["role"]


async def test_a_returning_session_adds_only_its_new_messages(reaching: Site, elsewhere: tuple[Elsewhere, str]) -> None:
    server, url = elsewhere
    first = await reaching.run("echo", "Zero")
    stored = (await reaching.get(f"/sessions/{first['session_id']}")).json()
    stored["history"] += [f"{url}/1", f"{url}/2"]
    run = await reaching.run("recall", "And?", session=stored)
    recalled = texts(run["output"])[0].split("; ")
    assert sorted(recalled) == ["agent: Uno", "agent: Zero", "user: One", "user: Zero"]
    assert sorted(server.fetched) == ["1", "2"]
    after = (await reaching.get(f"/sessions/{first['session_id']}")).json()
    assert after["history"][:4] == stored["history"]
    assert len(after["history"]) == 6
