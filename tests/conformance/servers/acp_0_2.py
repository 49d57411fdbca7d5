"""A scripted server of ACP 0.2."""

import asyncio
import base64
import copy
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, cast
from uuid import UUID, uuid4

from babelgate.conformance.trigger import Trigger
from tests.conformance.servers.acp_0_2_violations import VIOLATIONS
from tests.conformance.servers.kit import TRACE, Answer, Request, ScriptedServer, Server, options, sse

_SHORT: Final = 0.005
"""Seconds that a run is at work."""
_LONG: Final = 15.0
_TERMINAL: Final = ("completed", "failed", "cancelled")
_ROLE: Final = re.compile(r"^(user|agent(/[a-zA-Z0-9_\-]+)?)$")
_HIDES_SESSIONS: Final = {
    "session": "no sessions at the document's path",
    "sessions": "no sessions at the clients' path",
}
_PART: Final = {"name", "content_type", "content", "content_encoding", "content_url", "metadata"}


class _Refused(Exception):
    def __init__(self, status: int, code: str, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.code = code


@dataclass(eq=False)
class _Run:
    """One run, and everything that was told of it."""

    shown: dict[str, Any]
    owner: str
    mode: str
    text: str
    input: list[Any]
    events: list[Any] = field(default_factory=list[Any])
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    task: asyncio.Task[None] | None = None
    listed_from: int = 0
    has_asked: bool = False
    refused_cancel: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def status(self) -> str:
        return self.shown["status"]

    @property
    def is_over(self) -> bool:
        return self.status in _TERMINAL

    @property
    def has_stopped(self) -> bool:
        return self.is_over or self.status == "awaiting"


class Agents(ScriptedServer):
    """Three agents of one kind: the text of the input tells what they do."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.runs: dict[str, _Run] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        self.owners: dict[str, str] = {}
        self.resources: dict[str, Any] = {}
        self.shared: str | None = None
        self._numbers = count(1)

    async def handle(self, request: Request) -> Answer:
        path = [each for each in request.path.split("/") if each]
        try:
            answer = await self._routed(request, path)
        except _Refused as error:
            answer = Answer(error.status, self._error(error))
        is_json = answer.body is not None and not isinstance(answer.body, str | bytes)
        if is_json and self.does("answers are called text"):
            return replace(answer, headers={**answer.headers, "content-type": "text/plain"})
        return answer

    def _error(self, error: _Refused) -> Any:
        code, words = error.code, str(error)
        if error.status == 404 and self.does("404 is invalid input"):
            code = "invalid_input"
        if error.status == 422 and self.does("invalid input is a server error"):
            code = "server_error"
        if error.status == 403 and self.does("refusals are told as detail"):
            return {"detail": words}
        if error.status == 403 and self.does("refusals have codes of their own"):
            code = "forbidden"
        if error.status == 422 and self.does("errors show a stack trace"):
            words = TRACE
        return {"code": code, "message": words, "data": None}

    async def _routed(self, request: Request, path: Sequence[str]) -> Answer:
        match request.method, path:
            case "GET", ["ping"]:
                return Answer(body="pong" if self.does("ping is text") else {})
            case "GET", ["agents"]:
                return self._list_agents(request)
            case "GET", ["agents", name]:
                return self._agent(name)
            case "POST", ["runs"]:
                return await self._create(request)
            case "GET", ["runs", id]:
                return self._shown(request, id)
            case "POST", ["runs", id]:
                return await self._resume(request, id)
            case "POST", ["runs", id, "cancel"]:
                return await self._cancel(request, id)
            case "GET", ["runs", id, "events"]:
                return self._listed(request, id)
            case "GET", ["session" | "sessions" as name, id] if not self.does(_HIDES_SESSIONS[name]):
                return self._session(request, id)
            case "GET", ["resources", id] if id in self.resources and not self.does("histories lead nowhere"):
                return Answer(body=self.resources[id])
            case "DELETE", ["runs", _]:
                return Answer(204) if self.does("runs are deleted") else Answer(405, self._no_method())
            case _:
                return self._no_route(request)

    def _no_route(self, request: Request) -> Answer:
        if self.does("unknown paths are text"):
            return Answer(404, "Not Found")
        if self.does("ids are paths") and ".." in request.path:
            return Answer(200, "root:x:0:0:root:/root:/bin/sh")
        raise _Refused(404, "not_found", "There is no such path")

    def _no_method(self) -> Any:
        return {"code": "server_error", "message": "Method Not Allowed"}

    # Agents

    def _names(self) -> list[str]:
        names = ["talk_er" if self.does("names have underscores") else "talker", "listener", "thinker"]
        return [*names, "thinker"] if self.does("an agent is listed twice") else names

    def _manifest(self, name: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "tags": "Chat" if self.does("tags are text") else ["Chat"],
            "created_at": "2026-01-01T00:00:00Z",
            "capabilities": [{"name": "Talk", "description": "Says things"}],
            "author": {"name": "Ada"},
            "links": [{"type": "homepage", "url": "https://example.com"}],
            "dependencies": [{"type": "tool", "name": "count"}],
        }
        made: dict[str, Any] = {
            "name": name,
            "description": f"The {name}.",
            "input_content_types": ["*/*"],
            "output_content_types": ["text/plain"],
            "metadata": metadata,
            "status": {"success_rate": 99.5},
        }
        self.drop_if("manifests have no description", made, "description")
        return made

    def _list_agents(self, request: Request) -> Answer:
        limit = self._number(request, "limit", 10, 1, "limit=0 is everything")
        offset = self._number(request, "offset", 0, 0, "a negative offset is none")
        if limit > 1000 and not self.does("limit has no most"):
            raise _Refused(422, "invalid_input", "limit is 1000 at most")
        names = self._names()
        if limit == 1 and offset > 1 and self.does("pages overlap"):
            offset -= 1
        if self.does("offset is ignored"):
            offset = 0
        shown = names[offset:] if limit < 1 or self.does("limit is ignored") else names[offset : offset + limit]
        manifests = [self._manifest(name) for name in shown]
        return Answer(body=manifests if self.does("agents are a bare array") else {"agents": manifests})

    def _number(self, request: Request, name: str, default: int, least: int, violation: str) -> int:
        value = int(request.query.get(name, default))
        if value < least and not self.does(violation):
            raise _Refused(422, "invalid_input", f"{name} is {least} at least")
        return max(value, 0)

    def _agent(self, name: str) -> Answer:
        is_made_up = re.fullmatch("[a-z-]{1,63}", name) and self.does("unknown agents have a manifest")
        if name not in self._names() and not is_made_up:
            raise _Refused(404, "not_found", f"Agent {name} not found")
        made = self._manifest(name)
        self.set_if("a manifest has another name", made, name="another")
        self.set_if("a manifest has another description", made, description="Something else.")
        return Answer(body=made)

    # Requests

    def _json(self, request: Request) -> dict[str, Any]:
        if not request.headers.get("content-type") and self.does("bodies must be called JSON"):
            raise _Refused(415, "invalid_input", "no JSON")
        if request.body.count(b"[") > 500 and self.does("deep JSON is a server error"):
            raise _Refused(500, "server_error", "recursion")
        try:
            body = request.json
        except ValueError:
            status, code = (500, "server_error") if self.does("broken JSON is a 500") else (422, "invalid_input")
            raise _Refused(status, code, "no JSON") from None
        if not isinstance(body, dict):
            raise _Refused(422, "invalid_input", "no object")
        return cast("dict[str, Any]", body)

    def _refuse_unless(self, is_right: bool, words: str, violation: str) -> None:
        self.raise_unless(violation, _Refused(422, "invalid_input", words), when=not is_right)

    def _checked(self, body: dict[str, Any]) -> dict[str, Any]:
        self.set_if("there is a default agent", body, agent_name="talker", when="agent_name" not in body)
        self.set_if("there is a default input", body, input=[_message("user", "Hello")], when="input" not in body)
        text = body.get("input")
        self.set_if("an input may be text", body, input=[_message("user", str(text))], when=isinstance(text, str))
        if not isinstance(body.get("agent_name"), str) or not isinstance(body.get("input"), list):
            raise _Refused(422, "invalid_input", "agent_name and input are needed")
        given: list[Any] = body["input"]
        for message in given:
            self._check_message(message)
        self._refuse_unless(
            body.get("mode", "sync") in ("sync", "async", "stream"), "no such mode", "unknown modes are sync"
        )
        named = [each["role"] for each in given if str(each["role"]).startswith("agent/")]
        self.raise_if("an input is one message", _Refused(422, "invalid_input", "one message"), when=len(given) > 1)
        self.raise_if("an input is never another agent's", _Refused(422, "invalid_input", "no agents"), when=named)
        if "session_id" in body:
            self._refuse_unless(_is_uuid(body["session_id"]), "no UUID", "session ids are any text")
        return body

    def _check_message(self, message: Any) -> None:
        self._refuse_unless(bool(_ROLE.match(str(message.get("role")))), "no such role", "unknown roles are taken")
        self.set_if("messages need no parts", message, parts=[], when="parts" not in message)
        if not isinstance(message.get("parts"), list):
            raise _Refused(422, "invalid_input", "parts are needed")
        if len(message["parts"]) > 1 and self.does("a message has one part"):
            raise _Refused(422, "invalid_input", "one part")
        for part in message["parts"]:
            encoding = part.get("content_encoding", "plain")
            self._refuse_unless(encoding in ("plain", "base64"), "no such encoding", "unknown encodings are taken")
            is_one = not ("content" in part and "content_url" in part)
            self._refuse_unless(is_one, "content or content_url", "content may be told twice")
            is_file = part.get("content_type") == "application/octet-stream"
            self.raise_if("files are refused", _Refused(422, "invalid_input", "no files"), when=is_file)
            if not part.keys() <= _PART and self.does("unknown members are refused"):
                raise _Refused(422, "invalid_input", "unknown members")

    def _run(self, request: Request, id: str, violation: str) -> _Run:
        """`violation`: that it is everybody's."""
        if not _is_uuid(id) and id not in self.runs:
            status = 500 if self.does("odd run ids are server errors") else 422
            raise _Refused(status, "server_error" if status == 500 else "invalid_input", "no UUID")
        run = self.runs.get(id)
        is_mine = run is not None and run.owner == _owner(request)
        if run is None or not (is_mine or self.does(violation)):
            raise _Refused(404, "not_found", f"Run {id} not found")
        return run

    # Runs

    async def _create(self, request: Request) -> Answer:
        body = self._checked(self._json(request))
        if body["agent_name"] not in self._names():
            status = 422 if self.does("unknown agents are invalid input") else 404
            raise _Refused(status, "not_found", "There is no such agent")
        session_id = self._session_of(request, body)
        mode = body.get("mode", "async" if self.does("the default mode is async") else "sync")
        run = self._made(request, body, session_id, mode)
        headers = {} if self.does("no Run-ID") else {"Run-ID": run.shown["run_id"]}
        if mode == "stream":
            kind = "text/plain" if self.does("streams are called text") else "text/event-stream"
            return Answer(headers={**headers, "content-type": kind}, stream=self._stream(run, 0))
        if mode == "async":
            return self._accepted(run, headers)
        if not (run.text.startswith("Hello") and self.does("sync runs are answered at once")):
            await self._stopped(run)
        shown = copy.deepcopy(run.shown)
        self.set_if("questions are work in progress", shown, status="in-progress", when=run.status == "awaiting")
        self.set_if("sync answers have no output", shown, output=[], when=run.status == "completed")
        self.set_if("failed runs are completed", shown, status="completed", when=run.status == "failed")
        self.set_if("failures are work in progress", shown, status="in-progress", when=run.status == "failed")
        self.set_if("failures are not explained", shown, error=None, when=run.status == "failed")
        return Answer(body=shown, headers=headers)

    def _accepted(self, run: _Run, headers: Mapping[str, str]) -> Answer:
        shown = copy.deepcopy(run.shown)
        self.set_if("async runs are in progress at once", shown, status="in-progress")
        status = 200 if run.text.startswith("Hello") and self.does("quick async runs are answered with 200") else 202
        return Answer(status, shown, headers)

    def _made(self, request: Request, body: Mapping[str, Any], session_id: str | None, mode: str) -> _Run:
        parts = [part for each in body["input"] for part in each["parts"]]
        text = self.ascii_if("ASCII only", "".join(str(part.get("content", "")) for part in parts))
        is_plain = mode == "sync" and not {"session_id", "session"} & body.keys()
        if is_plain and self.does("equal runs at once are one"):
            for other in self.runs.values():
                if other.text == text == "Hello" and other.mode == "sync" and not other.has_stopped:
                    return other
        id = f"run-{next(self._numbers)}" if self.does("run ids are numbers") else str(uuid4())
        shown: dict[str, Any] = {
            "run_id": id,
            "agent_name": "another" if self.does("runs name another agent") else body["agent_name"],
            "session_id": session_id,
            "status": "created",
            "await_request": None,
            "output": [],
            "error": None,
            "created_at": self._now(),
            "finished_at": None,
        }
        run = self.runs[id] = _Run(shown, _owner(request), mode, text, body["input"])
        waits = mode == "async" and text.startswith("Hello") and self.does("async runs wait for ever")
        if not waits:
            run.task = asyncio.get_running_loop().create_task(self._work(run, body["agent_name"]))
        return run

    def _now(self) -> str:
        now = datetime.now(UTC).isoformat()
        return now.removesuffix("+00:00") if self.does("times have no zone") else now.replace("+00:00", "Z")

    async def _work(self, run: _Run, name: str) -> None:
        try:
            await self._started(run)
            if run.text.startswith("fail"):
                await self._said(run, name, ["Before."])
                await self._ended(run, "failed")
                return
            if run.text.startswith("long"):
                await asyncio.sleep(_LONG)
            elif run.text.startswith("ask"):
                await self._asked(run)
                return
            elif run.text.startswith("files"):
                parts = [part for each in run.input for part in each["parts"]]
                await self._said(run, name, ["Here it is."], [self._file(part) for part in parts if "name" in part])
            elif run.text.startswith("stream"):
                await self._said(run, name, ["one ", "two ", "three"])
            else:
                await asyncio.sleep(_SHORT)
                await self._said(run, name, [run.text])
            await self._ended(run, "completed")
        except asyncio.CancelledError:
            await self._ended(run, "cancelled")

    async def _started(self, run: _Run) -> None:
        is_plain = run.text.startswith("Hello")
        if not self.does("no run.created"):
            more = [_message("agent", "x")] if is_plain and self.does("run.created has the output") else []
            await self._told(run, "run.created", run={**run.shown, "output": more})
        if run.mode == "async" and run.text.startswith("long") and self.does("new runs cannot be cancelled"):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await run.refused_cancel.wait()
        run.shown["status"] = "in-progress"
        if not (is_plain and self.does("quick runs are never in progress")):
            other = is_plain and self.does("an event is of another session")
            shown = {**run.shown, "session_id": str(uuid4())} if other else run.shown
            await self._told(run, "run.in-progress", run=shown)

    def _file(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """A file that was given, as it is given back."""
        content = part["content"]
        if self.does("bytes are encoded twice"):
            content = base64.b64encode(content.encode()).decode()
        return {**part, "content": content}

    async def _said(self, run: _Run, name: str, pieces: Sequence[str], files: Sequence[Any] = ()) -> None:
        is_plain = run.text.startswith("Hello")
        role = "user" if self.does("agents speak as users") else f"agent/{name}"
        if self.does("agents are assistants"):
            role = "assistant"
        message: dict[str, Any] = {"role": role, "parts": [], "created_at": self._now(), "completed_at": None}
        parts: list[Any] = [*(self._text(piece) for piece in pieces), *files]
        if is_plain:
            parts += self._metadata()
            if self.does("events have types of their own"):
                await self._told(run, "progress", progress=1)
        is_early = is_plain and self.does("parts come before their message")
        if not is_early:
            await self._opened(run, message)
        run.shown["output"].append(message)
        for part in parts:
            message["parts"].append(part)
            await self._told(run, "message.part", part=part)
            if not is_plain and self.does("pieces are told twice"):
                await self._told(run, "message.part", part=part)
        if is_early:
            await self._opened(run, message)
        if not self.does("messages are never completed"):
            message["completed_at"] = self._now()
        if not (is_plain and self.does("messages are not told to be complete")):
            is_empty = is_plain and self.does("completed messages are empty")
            await self._told(run, "message.completed", message={**message, "parts": []} if is_empty else message)

    async def _opened(self, run: _Run, message: Mapping[str, Any]) -> None:
        opened: dict[str, Any] = {**message, "parts": []}
        self.drop_if("messages begin without parts", opened, "parts")
        await self._told(run, "message.created", message=opened)

    def _text(self, content: str) -> dict[str, Any]:
        part = {"name": None, "content_type": "text/plain", "content": content, "content_encoding": "plain"}
        self.drop_if("parts have no content_type", part, "content_type")
        return part

    def _metadata(self) -> list[Any]:
        start: Any = "0" if self.does("indexes are text") else 0
        cited = {"kind": "citation", "start_index": start, "end_index": 1, "url": "https://example.com"}
        given: Any = "x" if self.does("the input of a tool is text") else {"q": "x"}
        used = {"kind": "trajectory", "tool_name": "search", "tool_input": given, "tool_output": {"hits": 1}}
        return [{"content_type": "text/plain", "metadata": each} for each in (cited, used)]

    async def _asked(self, run: _Run) -> None:
        run.has_asked = True
        run.shown["status"] = "awaiting"
        run.shown["await_request"] = {"type": "message", "message": _message("agent", "Who are you?")}
        self.set_if("questions are text", run.shown, await_request={"type": "text", "text": "Who are you?"})
        self.set_if("questions are not told", run.shown, await_request=None)
        if self.does("waiting runs have finished"):
            run.shown["finished_at"] = self._now()
        await self._told(run, "run.awaiting", run=run.shown)

    async def _go_on(self, run: _Run, answer: str) -> None:
        try:
            if not self.does("a resume is not told"):
                await self._told(run, "run.in-progress", run=run.shown)
            await asyncio.sleep(_SHORT)
            name = run.shown["agent_name"]
            await self._said(run, name, ["Hello." if self.does("answers are not heard") else f"Hello, {answer}."])
            await self._ended(run, "completed")
        except asyncio.CancelledError:
            await self._ended(run, "cancelled")

    async def _ended(self, run: _Run, status: str) -> None:
        run.shown |= {"status": status, "await_request": None, "finished_at": self._now()}
        self.set_if(f"{status} runs never finish", run.shown, finished_at=None)
        if status == "failed":
            words = TRACE if self.does("failures show a stack trace") else "It failed."
            run.shown["error"] = {"code": "server_error", "message": words}
        elif status in ("completed", "cancelled") and self.does(f"{status} runs have an error"):
            run.shown["error"] = {"code": "server_error", "message": "None."}
        if status == "completed" or (status == "failed" and self.does("failed runs are kept")):
            self._record(run)
        shown = dict(run.shown)
        is_plain = run.text.startswith("Hello")
        self.set_if("the last event is in progress", shown, status="in-progress", when=is_plain)
        self.set_if("the last event has no output", shown, output=[], when=is_plain)
        await self._told(run, f"run.{status}", run=shown)
        if is_plain and self.does("runs end twice"):
            await self._told(run, f"run.{status}", run=shown)
        if is_plain and self.does("something follows the end"):
            await self._told(run, "generic", generic={"done": True})

    async def _told(self, run: _Run, type: str, /, **members: Any) -> None:
        async with run.news:
            run.events.append({"type": type, **copy.deepcopy(members)})
            run.news.notify_all()

    async def _stopped(self, run: _Run, after: int = 0) -> None:
        """Until the run has ended or asks, and has told so."""
        async with run.news:
            await run.news.wait_for(lambda: _has_end(run.events[after:]))

    async def _stream(self, run: _Run, at: int) -> AsyncGenerator[bytes]:
        start = at
        is_plain = run.text.startswith("Hello")
        try:
            if run.text.startswith("long") and self.does("events wait for the end"):
                await self._stopped(run)
            while True:
                while at < len(run.events):
                    event = run.events[at]
                    at += 1
                    if not self._is_hidden(event):
                        yield sse(event, id=str(at) if self.does("events have ids") else "")
                if _has_end(run.events[start:]) and at == len(run.events) and run.has_stopped:
                    break
                async with run.news:
                    if at == len(run.events):
                        await run.news.wait()
            if is_plain and self.does("streams are cut in an event"):
                yield b'data: {"type": '
        finally:
            if not run.has_stopped and self.does("callers that leave cancel") and run.task is not None:
                run.task.cancel()

    def _is_hidden(self, event: Mapping[str, Any]) -> bool:
        type = event["type"]
        return (
            (type == "run.awaiting" and self.does("streams do not tell questions"))
            or (type == "run.cancelled" and self.does("streams do not tell cancels"))
            or (type == "run.failed" and self.does("streams do not tell failures"))
        )

    def _shown(self, request: Request, id: str) -> Answer:
        if id not in self.runs and _is_uuid(id) and self.does("unknown runs are forbidden"):
            raise _Refused(403, "not_found", "no")
        run = self._run(request, id, "runs are everybody's")
        shown = copy.deepcopy(run.shown)
        self.set_if("get gives another run", shown, run_id=str(uuid4()))
        if self.does("get has the time of the request"):
            shown["created_at"] = self._now()
        self.set_if("runs at work are shown as created", shown, status="created", when=run.status == "in-progress")
        self.set_if("statuses have underscores", shown, status="in_progress", when=run.status == "in-progress")
        if run.mode == "stream" and run.status == "completed" and self.does("streamed runs are not stored"):
            shown["output"] = []
        self.set_if("questions are forgotten", shown, await_request=None, when=run.status == "awaiting")
        self.set_if("failures are forgotten", shown, error=None, when=run.status == "failed")
        if run.status == "cancelled" and run.text.startswith("long") and self.does("cancelled runs have failed"):
            shown["status"] = "failed"
        return Answer(body=shown)

    def _listed(self, request: Request, id: str) -> Answer:
        if id not in self.runs and _is_uuid(id) and self.does("unknown runs have no events"):
            return Answer(body={"events": []})
        run = self._run(request, id, "events are everybody's")
        events = copy.deepcopy(run.events[run.listed_from :])
        if run.mode == "sync" and self.does("sync runs have no events"):
            events = []
        if self.does("events show the run of now"):
            events = [{**each, "run": run.shown} if "run" in each else each for each in events]
        if run.status == "cancelled" and self.does("old events are forgotten"):
            events = events[1:]
        if self.does("questions are not listed"):
            events = [each for each in events if each["type"] != "run.awaiting"]
        if self.does("cancels are not listed"):
            events = [each for each in events if each["type"] != "run.cancelled"]
        if self.does("events are told by number"):
            return Answer(body={"events": dict(enumerate(events))})
        return Answer(body={"events": None if self.does("events are null") else events})

    async def _resume(self, request: Request, id: str) -> Answer:
        if id not in self.runs and self.does("a resume of an unknown run is a 403"):
            raise _Refused(403, "server_error", "no")
        run = self._run(request, id, "questions are everybody's")
        body = self._json(request)
        if "run_id" not in body and self.does("run_id must be in the body"):
            raise _Refused(422, "invalid_input", "run_id is needed")
        self._refuse_unless("await_resume" in body, "await_resume is needed", "no answer is an empty one")
        self._refuse_unless("mode" in body, "a mode is needed", "a resume without a mode is sync")
        if not self._may_resume(run):
            raise _Refused(403, "server_error", f"Run {id} has no await request")
        at = len(run.events)
        mode = body.get("mode", "sync")
        self._answered(run, body, mode)
        if self.does("a resume begins a new list"):
            run.listed_from = at
        if mode == "stream" and not self.does("a resume is never streamed"):
            return Answer(stream=self._stream(run, 0 if self.does("a resume streams from the start") else at))
        shown = run.shown
        if mode == "async":
            status = 200 if self.does("async resumes are answered with 200") else 202
            return Answer(status, {**shown, "status": "awaiting"} if self.does("a resumed run is awaiting") else shown)
        if not self.does("a sync resume is answered at once"):
            await self._stopped(run, at)
        if self.does("a resume changes when the run began"):
            shown = {**shown, "created_at": "2020-01-01T00:00:00Z"}
        return Answer(body=shown)

    def _may_resume(self, run: _Run) -> bool:
        if run.status == "awaiting":
            return True
        if run.has_asked:
            return (
                (run.status == "completed" and self.does("answered runs are resumed again"))
                or (run.status == "cancelled" and self.does("cancelled runs are resumed"))
                or (run.status == "in-progress" and self.does("resumes are not locked"))
            )
        if run.status == "in-progress":
            return self.does("runs at work are resumed")
        return run.is_over and self.does("runs that ask nothing are resumed")

    def _answered(self, run: _Run, body: Mapping[str, Any], mode: str) -> None:
        if run.status != "awaiting":
            return
        given: Any = body.get("await_resume") or {"message": {"parts": []}}
        text = "".join(part.get("content", "") for part in given["message"]["parts"])
        run.shown["status"] = "in-progress"
        if not (mode == "async" and self.does("async resumes wait for ever")):
            run.task = asyncio.get_running_loop().create_task(self._go_on(run, text))

    async def _cancel(self, request: Request, id: str) -> Answer:
        if id not in self.runs and self.does("a cancel of an unknown run is a 403"):
            raise _Refused(403, "server_error", "no")
        run = self._run(request, id, "cancels are everybody's")
        if not self._may_cancel(run):
            run.refused_cancel.set()
            raise _Refused(403, "server_error", f"Run in terminal status {run.status} can't be cancelled")
        if run.status == "awaiting":
            await self._ended(run, "cancelled")
        elif not run.is_over and run.task is not None:
            run.task.cancel()
        done = self.does("a cancel is done at once")
        shown = {**run.shown, "status": "cancelled" if done else "cancelling", "await_request": None}
        self.drop_if("a cancelling run has no output", shown, "output")
        return Answer(200 if self.does("cancels are answered with 200") else 202, shown)

    def _may_cancel(self, run: _Run) -> bool:
        match run.status:
            case "completed":
                return self.does("completed runs are cancelled")
            case "cancelled":
                return self.does("cancelled runs are cancelled again")
            case "failed":
                return False
            case "awaiting":
                return not self.does("waiting runs cannot be cancelled")
            case "created":
                return not self.does("new runs cannot be cancelled")
            case _:
                return True

    # Sessions

    def _session_of(self, request: Request, body: Mapping[str, Any]) -> str | None:
        given = body.get("session")
        named = body.get("session_id")
        if given and named and given["id"] != named and not self.does("two sessions are one"):
            raise _Refused(400, "invalid_input", "Session ID mismatch")
        if given and not self.does("sessions that are given are ignored"):
            named = given["id"]
        if named is None and self.does("runs have no session"):
            return None
        if named is None and self.does("runs without a session share one"):
            named = self.shared = self.shared or str(uuid4())
        if named is None or self.does("sessions are always new"):
            named = f"session-{next(self._numbers)}" if self.does("session ids are numbers") else str(uuid4())
        self.sessions.setdefault(named, {"id": named, "history": list[str](), "state": None})
        self.owners.setdefault(named, _owner(request))
        self.sessions[named]["base"] = request.base
        return named

    def _record(self, run: _Run) -> None:
        session = self.sessions.get(run.shown["session_id"])
        if session is None:
            return
        kept = copy.deepcopy(run.shown["output"])
        if self.does("outputs are kept without text"):
            kept = [{**each, "parts": [self._text("")]} for each in kept]
        said = [] if self.does("inputs are not kept") else list(run.input)
        history: list[str] = session["history"]
        if self.does("each run begins its session anew"):
            history.clear()
        for message in [*kept, *said] if self.does("histories begin with the output") else [*said, *kept]:
            id = str(uuid4())
            self.resources[id] = message
            base = "" if self.does("histories are paths") else session["base"]
            history.append(f"{base}/resources/{id}")

    def _session(self, request: Request, id: str) -> Answer:
        if not _is_uuid(id) and id not in self.sessions:
            raise _Refused(422, "invalid_input", "no UUID")
        if id not in self.sessions and self.does("unknown sessions are made"):
            return Answer(body={"id": id, "history": []})
        is_mine = self.owners.get(id) == _owner(request) or self.does("sessions are everybody's")
        if id not in self.sessions or not is_mine:
            raise _Refused(404, "not_found", f"Session {id} not found")
        shown = {name: value for name, value in self.sessions[id].items() if name != "base"}
        self.set_if("sessions have another id", shown, id=str(uuid4()))
        self.set_if("states are numbers", shown, state=7)
        return Answer(body=shown)


def _owner(request: Request) -> str:
    return request.headers.get("x-api-key", "")


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"content_type": "text/plain", "content": text}]}


def _has_end(events: Sequence[Any]) -> bool:
    ends = ("run.completed", "run.failed", "run.cancelled", "run.awaiting")
    return any(event["type"] in ends for event in events)


def _is_uuid(text: Any) -> bool:
    try:
        UUID(str(text))
    except ValueError:
        return False
    return True


SERVER: Final = Server(
    set="acp-0.2",
    make=Agents,
    violations=VIOLATIONS,
    options=options(
        plain="Hello",
        stream="stream",
        question=Trigger("ask me", answer="Ada"),
        fail="fail",
        long="long",
        files="files",
    ),
    unbroken={
        "agents.list": "a server that fails it shows no agents to judge: the dead server shows that",
        "run.sync": "a server that fails it keeps nothing of its runs: the dead server shows that",
    },
)
