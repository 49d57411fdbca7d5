"""Sessions: what they record, and how one is held on several servers."""

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
from tests.adapters.acp.site import NOBODY, Site, message, opened, texts
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def history(site: Site, session_id: str) -> list[Any]:
    """The messages behind a session's URLs."""
    session = (await site.get(f"/sessions/{session_id}")).json()
    return [(await site.http.get(url)).json() for url in session["history"]]


def said(messages: list[Any]) -> list[tuple[str, str]]:
    return [(each["role"], text) for each, text in zip(messages, texts(messages), strict=True)]


async def test_a_run_without_a_session_gets_one_of_its_own(site: Site) -> None:
    first, second = await site.run("echo"), await site.run("echo")
    assert first["session_id"] != second["session_id"]


async def test_an_unknown_session_is_made_with_its_id_and_a_known_one_goes_on(site: Site) -> None:
    session_id = str(uuid4())
    for text in ("One", "Two"):
        assert (await site.run("echo", text, session_id=session_id))["session_id"] == session_id
    assert said(await history(site, session_id)) == [
        ("user", "One"),
        ("agent/echo", "One"),
        ("user", "Two"),
        ("agent/echo", "Two"),
    ]


async def test_both_paths_of_a_session_answer_the_same(site: Site) -> None:
    """The OpenAPI has /session, the SDK and every client /sessions."""
    run = await site.run("echo")
    plural, singular = [await site.get(f"/{path}/{run['session_id']}") for path in ("sessions", "session")]
    assert plural.json() == singular.json()
    assert (plural.json()["id"], plural.json()["state"]) == (run["session_id"], None)


async def test_the_urls_of_a_history_are_absolute_and_begin_where_the_caller_did(site: Site) -> None:
    run = await site.run("echo")
    session = (await site.get(f"/sessions/{run['session_id']}")).json()
    assert all(url.startswith("http://127.0.0.1:8000/acp/resources/") for url in session["history"])
    below = (await site.http.get(f"/agent/echo/acp/sessions/{run['session_id']}")).json()
    assert all(url.startswith("http://127.0.0.1:8000/agent/echo/acp/resources/") for url in below["history"])
    assert (await site.http.get(below["history"][0])).json()["parts"][0]["content"] == "Hello"


async def test_runs_that_failed_were_cancelled_or_await_record_nothing(site: Site) -> None:
    session_id = str(uuid4())
    await site.run("fail", "Boom", session_id=session_id)
    run = await site.run("ask", session_id=session_id)
    assert await history(site, session_id) == []
    await site.http.post(f"/acp/runs/{run['run_id']}/cancel")
    assert await history(site, session_id) == []


async def test_a_session_that_was_looked_at_before_is_as_its_records_tell(site: Site) -> None:
    session_id = str(uuid4())

    async def look() -> list[str]:
        shown: list[str] = (await site.get(f"/sessions/{session_id}")).json()["history"]
        whole = SessionTranscript(session_id, base_url="http://127.0.0.1:8000", advertised=str)
        for record in await site.hub.reads.records("default", Scope(session_id)):
            whole.apply(record)
        assert shown == [entry.url for entry in whole.entries()]
        return shown

    await site.run("echo", "One", session_id=session_id)
    assert len(await look()) == 2
    asking = await site.run("ask", "Hi", session_id=session_id)
    assert len(await look()) == 2
    await site.resume(asking["run_id"], "Ada")
    assert len(await look()) == 5
    said = [Message.of(words, "user").replace(message_id=words) for words in ("a", "b")]
    for messages in (said, said[:1], [said[1].replace(extra={"acp": {"url": "http://elsewhere/1"}})]):
        await site.hub.update_state("default", StateUpdate(thread_id=session_id, messages=tuple(messages)))
        assert len(await look()) == 7
    assert (await look())[-1] == "http://elsewhere/1"
    runs = await (await site.hub.reads.runs("default", RunFilter(thread_id=session_id), limit=10)).all()
    await site.hub.remove_run("default", runs[0].run_id)
    assert len(await look()) == 4
    await site.run("echo", "Two", session_id=session_id)
    assert len(await look()) == 6


async def test_what_was_asked_and_answered_is_recorded_with_the_run(site: Site) -> None:
    run = await site.run("ask", "Hi")
    await site.resume(run["run_id"], "Ada")
    assert said(await history(site, run["session_id"])) == [
        ("user", "Hi"),
        ("user", "Ada"),
        ("agent/ask", "Hello, Ada."),
    ]


async def test_a_run_is_recorded_before_its_caller_sees_that_it_is_completed(site: Site) -> None:
    for _ in range(10):
        run = await site.run("echo")
        assert len((await site.get(f"/sessions/{run['session_id']}")).json()["history"]) == 2


async def test_the_agent_remembers_the_session(site: Site) -> None:
    session_id = str(uuid4())
    await site.run("echo", "One", session_id=session_id)
    run = await site.run("recall", "And?", session_id=session_id)
    assert texts(run["output"]) == ["user: One; agent: One"]


async def test_a_session_and_the_id_of_another_is_400(site: Site) -> None:
    session: dict[str, Any] = {"id": str(uuid4()), "history": []}
    answer = await site.create("echo", session=session, session_id=str(uuid4()))
    assert (answer.status_code, answer.json()) == (
        400,
        {"code": "invalid_input", "message": "Session ID mismatch", "data": None},
    )
    assert (await site.run("echo", session=session, session_id=session["id"]))["session_id"] == session["id"]


# Sessions on several servers


class Elsewhere:
    """Another server, which keeps the messages of sessions."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.answers: dict[str, bytes] = {}

    def app(self) -> Litestar:
        @get("/{name:path}")
        async def resource(request: Request[Any, Any, Any]) -> Response[Any]:
            name = request.url.path.strip("/")
            self.fetched.append(name)
            # The SDK's own server gives resources no Content-Type.
            return Response(self.answers[name], status_code=200 if name in self.answers else 404)

        return Litestar([resource], openapi_config=None)

    def keep(self, name: str, **said: Any) -> None:
        self.answers[name] = json.dumps(said).encode()


@pytest_asyncio.fixture(loop_scope="module")
async def elsewhere() -> AsyncGenerator[tuple[Elsewhere, str]]:
    server = Elsewhere()
    server.keep("1", role="user", parts=[{"content": "One"}])
    server.keep("2", role="agent/other", parts=[{"content": "Uno"}])
    async with serving(server.app()) as url:
        yield server, url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reaching(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """A gateway that may fetch from this machine."""
    folder = tmp_path_factory.mktemp("reaching")
    async with opened(folder, {"recall": recall}, network={"allow": ["127.0.0.0/8"]}) as made:
        yield made


async def test_the_history_of_another_server_is_fetched_and_kept_under_its_own_urls(
    reaching: Site, elsewhere: tuple[Elsewhere, str]
) -> None:
    server, url = elsewhere
    session = {"id": str(uuid4()), "history": [f"{url}/1", f"{url}/2"]}
    run = await reaching.run("recall", "And?", session=session)
    assert texts(run["output"]) == ["user: One; agent: Uno"]
    assert sorted(server.fetched) == ["1", "2"]
    known = (await reaching.get(f"/sessions/{session['id']}")).json()
    assert known["history"][:2] == session["history"]
    assert len(known["history"]) == 4
    server.fetched.clear()
    again = await reaching.run("recall", "And now?", session=known)
    assert server.fetched == []
    assert again["session_id"] == session["id"]
    assert texts(again["output"])[0].startswith("user: One; agent: Uno; user: And?; agent: ")


async def test_addresses_that_are_not_allowed_are_not_fetched(site: Site, elsewhere: tuple[Elsewhere, str]) -> None:
    server, url = elsewhere
    for address in (f"{url}/1", "file:///etc/passwd", "http://169.254.169.254/latest", "nonsense"):
        answer = await site.create("echo", session={"id": str(uuid4()), "history": [address]})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), address
    assert server.fetched == []


async def test_what_is_fetched_must_be_a_message(reaching: Site, elsewhere: tuple[Elsewhere, str]) -> None:
    server, url = elsewhere
    server.answers |= {"text": b"Hello", "role": b'{"role": "system", "parts": []}', "nan": b"NaN"}
    for name in ("text", "role", "nan"):
        answer = await reaching.create("echo", session={"id": str(uuid4()), "history": [f"{url}/{name}"]})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), name


async def test_our_own_urls_in_a_new_session_are_read_here_and_only_if_they_are_the_callers(site: Site) -> None:
    first = await site.run("echo", "One")
    known = (await site.get(f"/sessions/{first['session_id']}")).json()
    run = await site.run("recall", "And?", session={"id": str(uuid4()), "history": known["history"]})
    assert texts(run["output"]) == ["user: One; agent: One"]
    foreign = f"http://127.0.0.1:8000/acp/resources/{NOBODY}.0"
    answer = await site.create("recall", session={"id": str(uuid4()), "history": [foreign]})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")


async def test_a_descriptor_has_a_bound(site: Site) -> None:
    session = {"id": str(uuid4()), "history": [f"http://127.0.0.1:1/{n}" for n in range(1001)]}
    assert (await site.create("echo", session=session)).status_code == 422


async def test_files_of_a_session_are_in_its_resources(site: Site) -> None:
    parts = [{"name": "note.txt", "content": "A note"}, {"content": "Text"}]
    run = (await site.post("/runs", {"agent_name": "files", "input": [{"role": "user", "parts": parts}]})).json()
    given, returned = await history(site, run["session_id"])
    assert [part["content"] for part in given["parts"]] == ["A note", "Text"]
    assert [part["name"] for part in returned["parts"]] == ["note.txt", "report.txt"]
    assert message("x")["role"] == given["role"]


async def test_a_session_that_comes_back_from_another_server_brings_only_what_is_new(
    reaching: Site, elsewhere: tuple[Elsewhere, str]
) -> None:
    server, url = elsewhere
    first = await reaching.run("echo", "Zero")
    known = (await reaching.get(f"/sessions/{first['session_id']}")).json()
    known["history"] += [f"{url}/1", f"{url}/2"]
    run = await reaching.run("recall", "And?", session=known)
    heard = texts(run["output"])[0].split("; ")
    assert sorted(heard) == ["agent: Uno", "agent: Zero", "user: One", "user: Zero"]
    assert sorted(server.fetched) == ["1", "2"]
    after = (await reaching.get(f"/sessions/{first['session_id']}")).json()
    assert after["history"][:4] == known["history"]
    assert len(after["history"]) == 6
