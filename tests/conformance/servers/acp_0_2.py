"""Scripted ACP 0.2 server."""

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
from uuid import uuid4

from babelgate.conformance.trigger import Trigger
from tests.conformance.servers.acp_0_2_violations import VIOLATIONS
from tests.conformance.servers.kit import TRACE, Answer, Request, ScriptedServer, Server, is_uuid, options, sse

_SHORT: Final = 0.005
"""Duration of a short run, in seconds."""
_LONG: Final = 15.0
"""Duration of a long run, in seconds, unless it is cancelled."""
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
    """One run and its events."""

    state: dict[str, Any]
    owner: str
    mode: str
    text: str
    input: list[Any]
    events: list[Any] = field(default_factory=list[Any])
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    task: asyncio.Task[None] | None = None
    first_listed: int = 0
    has_asked: bool = False
    refused_cancel: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def status(self) -> str:
        return self.state["status"]

    @property
    def is_over(self) -> bool:
        return self.status in _TERMINAL

    @property
    def has_stopped(self) -> bool:
        return self.is_over or self.status == "awaiting"


class Agents(ScriptedServer):
    """Server with three equal agents. The text of the input selects what an agent does."""

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
            answer = await self._route(request, path)
        except _Refused as error:
            answer = Answer(error.status, self._error(error))
        is_json = answer.body is not None and not isinstance(answer.body, str | bytes)
        if is_json and self.does("JSON has the media type of text"):
            return replace(answer, headers={**answer.headers, "content-type": "text/plain"})
        return answer

    def _error(self, error: _Refused) -> Any:
        code, words = error.code, str(error)
        if error.status == 404 and self.does("404 is invalid input"):
            code = "invalid_input"
        if error.status == 422 and self.does("invalid input is a server error"):
            code = "server_error"
        if error.status == 403 and self.does("refusals have a detail"):
            return {"detail": words}
        if error.status == 403 and self.does("refusals have unknown codes"):
            code = "forbidden"
        if error.status == 422 and self.does("errors show a stack trace"):
            words = TRACE
        return {"code": code, "message": words, "data": None}

    async def _route(self, request: Request, path: Sequence[str]) -> Answer:
        match request.method, path:
            case "GET", ["ping"]:
                return Answer(body="pong" if self.does("ping is text") else {})
            case "GET", ["agents"]:
                return self._list_agents(request)
            case "GET", ["agents", name]:
                return self._agent(name)
            case "POST", ["runs"]:
                return await self._post(request)
            case "GET", ["runs", id]:
                return self._get(request, id)
            case "POST", ["runs", id]:
                return await self._resume(request, id)
            case "POST", ["runs", id, "cancel"]:
                return await self._cancel(request, id)
            case "GET", ["runs", id, "events"]:
                return self._list_events(request, id)
            case "GET", ["session" | "sessions" as name, id] if not self.does(_HIDES_SESSIONS[name]):
                return self._session(request, id)
            case "GET", ["resources", id] if id in self.resources and not self.does("histories have broken links"):
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
        manifest: dict[str, Any] = {
            "name": name,
            "description": f"The {name}.",
            "input_content_types": ["*/*"],
            "output_content_types": ["text/plain"],
            "metadata": metadata,
            "status": {"success_rate": 99.5},
        }
        self.drop_if("manifests have no description", manifest, "description")
        return manifest

    def _list_agents(self, request: Request) -> Answer:
        limit = self._number(request, "limit", 10, 1, "limit=0 is everything")
        offset = self._number(request, "offset", 0, 0, "a negative offset is 0")
        if limit > 1000 and not self.does("limit has no maximum"):
            raise _Refused(422, "invalid_input", "limit is 1000 at most")
        names = self._names()
        if limit == 1 and offset > 1 and self.does("pages overlap"):
            offset -= 1
        if self.does("offset is ignored"):
            offset = 0
        page = names[offset:] if limit < 1 or self.does("limit is ignored") else names[offset : offset + limit]
        manifests = [self._manifest(name) for name in page]
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
        manifest = self._manifest(name)
        self.set_if("a manifest has another name", manifest, name="another")
        self.set_if("a manifest has another description", manifest, description="Something else.")
        return Answer(body=manifest)

    # Requests

    def _json(self, request: Request) -> dict[str, Any]:
        if not request.headers.get("content-type") and self.does("bodies need a content type"):
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

    def _validated(self, body: dict[str, Any]) -> dict[str, Any]:
        self.set_if("there is a default agent", body, agent_name="talker", when="agent_name" not in body)
        self.set_if("there is a default input", body, input=[_message("user", "Hello")], when="input" not in body)
        text = body.get("input")
        self.set_if("an input may be text", body, input=[_message("user", str(text))], when=isinstance(text, str))
        if not isinstance(body.get("agent_name"), str) or not isinstance(body.get("input"), list):
            raise _Refused(422, "invalid_input", "agent_name and input are needed")
        messages: list[Any] = body["input"]
        for message in messages:
            self._check_message(message)
        self._refuse_unless(
            body.get("mode", "sync") in ("sync", "async", "stream"), "no such mode", "unknown modes are sync"
        )
        named = [each["role"] for each in messages if str(each["role"]).startswith("agent/")]
        self.raise_if("an input is one message", _Refused(422, "invalid_input", "one message"), when=len(messages) > 1)
        self.raise_if("an input is never another agent's", _Refused(422, "invalid_input", "no agents"), when=named)
        if "session_id" in body:
            self._refuse_unless(is_uuid(body["session_id"]), "no UUID", "session ids are any text")
        return body

    def _check_message(self, message: Any) -> None:
        self._refuse_unless(bool(_ROLE.match(str(message.get("role")))), "no such role", "unknown roles are accepted")
        self.set_if("messages need no parts", message, parts=[], when="parts" not in message)
        if not isinstance(message.get("parts"), list):
            raise _Refused(422, "invalid_input", "parts are needed")
        if len(message["parts"]) > 1 and self.does("a message has one part"):
            raise _Refused(422, "invalid_input", "one part")
        for part in message["parts"]:
            encoding = part.get("content_encoding", "plain")
            self._refuse_unless(encoding in ("plain", "base64"), "no such encoding", "unknown encodings are accepted")
            is_one = not ("content" in part and "content_url" in part)
            self._refuse_unless(is_one, "content or content_url", "content and content_url are accepted together")
            is_file = part.get("content_type") == "application/octet-stream"
            self.raise_if("files are refused", _Refused(422, "invalid_input", "no files"), when=is_file)
            if not part.keys() <= _PART and self.does("unknown members are refused"):
                raise _Refused(422, "invalid_input", "unknown members")

    def _run(self, request: Request, id: str, violation: str) -> _Run:
        """Return the run of the caller, or of any caller if the server commits the violation."""
        if not is_uuid(id) and id not in self.runs:
            status = 500 if self.does("odd run ids are server errors") else 422
            raise _Refused(status, "server_error" if status == 500 else "invalid_input", "no UUID")
        run = self.runs.get(id)
        is_mine = run is not None and run.owner == request.caller
        if run is None or not (is_mine or self.does(violation)):
            raise _Refused(404, "not_found", f"Run {id} not found")
        return run

    # Runs

    async def _post(self, request: Request) -> Answer:
        body = self._validated(self._json(request))
        if body["agent_name"] not in self._names():
            status = 422 if self.does("unknown agents are invalid input") else 404
            raise _Refused(status, "not_found", "There is no such agent")
        session_id = self._session_of(request, body)
        mode = body.get("mode", "async" if self.does("the default mode is async") else "sync")
        run = self._create_run(request, body, session_id, mode)
        headers = {} if self.does("no Run-ID") else {"Run-ID": run.state["run_id"]}
        if mode == "stream":
            kind = "text/plain" if self.does("streams have the media type of text") else "text/event-stream"
            return Answer(headers={**headers, "content-type": kind}, stream=self._stream(run, 0))
        if mode == "async":
            return self._accepted(run, headers)
        if not (run.text.startswith("Hello") and self.does("sync runs do not wait")):
            await self._wait_for_stop(run)
        answer = copy.deepcopy(run.state)
        self.set_if("questions are work in progress", answer, status="in-progress", when=run.status == "awaiting")
        self.set_if("sync answers have no output", answer, output=[], when=run.status == "completed")
        self.set_if("failed runs are completed", answer, status="completed", when=run.status == "failed")
        self.set_if("failures are work in progress", answer, status="in-progress", when=run.status == "failed")
        self.set_if("failures are not explained", answer, error=None, when=run.status == "failed")
        return Answer(body=answer, headers=headers)

    def _accepted(self, run: _Run, headers: Mapping[str, str]) -> Answer:
        answer = copy.deepcopy(run.state)
        self.set_if("async runs start in progress", answer, status="in-progress")
        status = 200 if run.text.startswith("Hello") and self.does("quick async runs are answered with 200") else 202
        return Answer(status, answer, headers)

    def _create_run(self, request: Request, body: Mapping[str, Any], session_id: str | None, mode: str) -> _Run:
        parts = [part for each in body["input"] for part in each["parts"]]
        text = self.ascii_if("ASCII only", "".join(str(part.get("content", "")) for part in parts))
        is_plain = mode == "sync" and not {"session_id", "session"} & body.keys()
        if is_plain and self.does("equal concurrent runs are one"):
            for other in self.runs.values():
                if other.text == text == "Hello" and other.mode == "sync" and not other.has_stopped:
                    return other
        id = f"run-{next(self._numbers)}" if self.does("run ids are numbers") else str(uuid4())
        state: dict[str, Any] = {
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
        run = self.runs[id] = _Run(state, request.caller, mode, text, body["input"])
        waits = mode == "async" and text.startswith("Hello") and self.does("async runs never start")
        if not waits:
            run.task = asyncio.get_running_loop().create_task(self._work(run, body["agent_name"]))
        return run

    def _now(self) -> str:
        now = datetime.now(UTC).isoformat()
        return now.removesuffix("+00:00") if self.does("times have no zone") else now.replace("+00:00", "Z")

    async def _work(self, run: _Run, name: str) -> None:
        try:
            await self._start(run)
            if run.text.startswith("fail"):
                await self._say(run, name, ["Before."])
                await self._end(run, "failed")
                return
            if run.text.startswith("long"):
                await asyncio.sleep(_LONG)
            elif run.text.startswith("ask"):
                await self._ask(run)
                return
            elif run.text.startswith("files"):
                parts = [part for each in run.input for part in each["parts"]]
                await self._say(run, name, ["Here it is."], [self._file(part) for part in parts if "name" in part])
            elif run.text.startswith("stream"):
                await self._say(run, name, ["one ", "two ", "three"])
            else:
                await asyncio.sleep(_SHORT)
                await self._say(run, name, [run.text])
            await self._end(run, "completed")
        except asyncio.CancelledError:
            await self._end(run, "cancelled")

    async def _start(self, run: _Run) -> None:
        is_plain = run.text.startswith("Hello")
        if not self.does("no run.created"):
            more = [_message("agent", "x")] if is_plain and self.does("run.created has the output") else []
            await self._publish(run, "run.created", run={**run.state, "output": more})
        if run.mode == "async" and run.text.startswith("long") and self.does("new runs cannot be cancelled"):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await run.refused_cancel.wait()
        run.state["status"] = "in-progress"
        if not (is_plain and self.does("quick runs are never in progress")):
            other = is_plain and self.does("an event is of another session")
            state = {**run.state, "session_id": str(uuid4())} if other else run.state
            await self._publish(run, "run.in-progress", run=state)

    def _file(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """Return a file of the input as part of the output."""
        content = part["content"]
        if self.does("bytes are encoded twice"):
            content = base64.b64encode(content.encode()).decode()
        return {**part, "content": content}

    async def _say(self, run: _Run, name: str, pieces: Sequence[str], files: Sequence[Any] = ()) -> None:
        is_plain = run.text.startswith("Hello")
        role = "user" if self.does("agents speak as users") else f"agent/{name}"
        if self.does("agents are assistants"):
            role = "assistant"
        message: dict[str, Any] = {"role": role, "parts": [], "created_at": self._now(), "completed_at": None}
        parts: list[Any] = [*(self._text(piece) for piece in pieces), *files]
        if is_plain:
            parts += self._metadata()
            if self.does("events have unknown types"):
                await self._publish(run, "progress", progress=1)
        is_early = is_plain and self.does("parts come before their message")
        if not is_early:
            await self._open_message(run, message)
        run.state["output"].append(message)
        for part in parts:
            message["parts"].append(part)
            await self._publish(run, "message.part", part=part)
            if not is_plain and self.does("pieces are sent twice"):
                await self._publish(run, "message.part", part=part)
        if is_early:
            await self._open_message(run, message)
        if not self.does("messages are never completed"):
            message["completed_at"] = self._now()
        if not (is_plain and self.does("messages have no completed event")):
            is_empty = is_plain and self.does("completed messages are empty")
            await self._publish(run, "message.completed", message={**message, "parts": []} if is_empty else message)

    async def _open_message(self, run: _Run, message: Mapping[str, Any]) -> None:
        opened: dict[str, Any] = {**message, "parts": []}
        self.drop_if("messages begin without parts", opened, "parts")
        await self._publish(run, "message.created", message=opened)

    def _text(self, content: str) -> dict[str, Any]:
        part = {"name": None, "content_type": "text/plain", "content": content, "content_encoding": "plain"}
        self.drop_if("parts have no content_type", part, "content_type")
        return part

    def _metadata(self) -> list[Any]:
        start: Any = "0" if self.does("indexes are text") else 0
        cited = {"kind": "citation", "start_index": start, "end_index": 1, "url": "https://example.com"}
        arguments: Any = "x" if self.does("the input of a tool is text") else {"q": "x"}
        used = {"kind": "trajectory", "tool_name": "search", "tool_input": arguments, "tool_output": {"hits": 1}}
        return [{"content_type": "text/plain", "metadata": each} for each in (cited, used)]

    async def _ask(self, run: _Run) -> None:
        run.has_asked = True
        run.state["status"] = "awaiting"
        run.state["await_request"] = {"type": "message", "message": _message("agent", "Who are you?")}
        self.set_if("questions are text", run.state, await_request={"type": "text", "text": "Who are you?"})
        self.set_if("questions are not sent", run.state, await_request=None)
        if self.does("waiting runs have finished"):
            run.state["finished_at"] = self._now()
        await self._publish(run, "run.awaiting", run=run.state)

    async def _continue(self, run: _Run, answer: str) -> None:
        try:
            if not self.does("a resume has no event"):
                await self._publish(run, "run.in-progress", run=run.state)
            await asyncio.sleep(_SHORT)
            name = run.state["agent_name"]
            await self._say(run, name, ["Hello." if self.does("answers are ignored") else f"Hello, {answer}."])
            await self._end(run, "completed")
        except asyncio.CancelledError:
            await self._end(run, "cancelled")

    async def _end(self, run: _Run, status: str) -> None:
        run.state |= {"status": status, "await_request": None, "finished_at": self._now()}
        self.set_if(f"{status} runs never finish", run.state, finished_at=None)
        if status == "failed":
            words = TRACE if self.does("failures show a stack trace") else "It failed."
            run.state["error"] = {"code": "server_error", "message": words}
        elif status in ("completed", "cancelled") and self.does(f"{status} runs have an error"):
            run.state["error"] = {"code": "server_error", "message": "None."}
        if status == "completed" or (status == "failed" and self.does("failed runs are in the session")):
            self._record(run)
        state = dict(run.state)
        is_plain = run.text.startswith("Hello")
        self.set_if("the last event is in progress", state, status="in-progress", when=is_plain)
        self.set_if("the last event has no output", state, output=[], when=is_plain)
        await self._publish(run, f"run.{status}", run=state)
        if is_plain and self.does("runs end twice"):
            await self._publish(run, f"run.{status}", run=state)
        if is_plain and self.does("something follows the end"):
            await self._publish(run, "generic", generic={"done": True})

    async def _publish(self, run: _Run, type: str, /, **members: Any) -> None:
        async with run.news:
            run.events.append({"type": type, **copy.deepcopy(members)})
            run.news.notify_all()

    async def _wait_for_stop(self, run: _Run, after: int = 0) -> None:
        """Wait until the run has published that it ended or needs input."""
        async with run.news:
            await run.news.wait_for(lambda: _has_end(run.events[after:]))

    async def _stream(self, run: _Run, at: int) -> AsyncGenerator[bytes]:
        start = at
        is_plain = run.text.startswith("Hello")
        try:
            if run.text.startswith("long") and self.does("events wait for the end"):
                await self._wait_for_stop(run)
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
            if not run.has_stopped and self.does("a disconnect cancels") and run.task is not None:
                run.task.cancel()

    def _is_hidden(self, event: Mapping[str, Any]) -> bool:
        type = event["type"]
        return (
            (type == "run.awaiting" and self.does("streams lack questions"))
            or (type == "run.cancelled" and self.does("streams lack cancels"))
            or (type == "run.failed" and self.does("streams lack failures"))
        )

    def _get(self, request: Request, id: str) -> Answer:
        if id not in self.runs and is_uuid(id) and self.does("unknown runs are forbidden"):
            raise _Refused(403, "not_found", "no")
        run = self._run(request, id, "runs are open to all callers")
        state = copy.deepcopy(run.state)
        self.set_if("get returns another run", state, run_id=str(uuid4()))
        if self.does("get has the time of the request"):
            state["created_at"] = self._now()
        self.set_if("active runs are shown as created", state, status="created", when=run.status == "in-progress")
        self.set_if("statuses have underscores", state, status="in_progress", when=run.status == "in-progress")
        if run.mode == "stream" and run.status == "completed" and self.does("streamed runs are not stored"):
            state["output"] = []
        self.set_if("questions are forgotten", state, await_request=None, when=run.status == "awaiting")
        self.set_if("failures are forgotten", state, error=None, when=run.status == "failed")
        if run.status == "cancelled" and run.text.startswith("long") and self.does("cancelled runs have failed"):
            state["status"] = "failed"
        return Answer(body=state)

    def _list_events(self, request: Request, id: str) -> Answer:
        if id not in self.runs and is_uuid(id) and self.does("unknown runs have no events"):
            return Answer(body={"events": []})
        run = self._run(request, id, "events are open to all callers")
        events = copy.deepcopy(run.events[run.first_listed :])
        if run.mode == "sync" and self.does("sync runs have no events"):
            events = []
        if self.does("events show the run of now"):
            events = [{**each, "run": run.state} if "run" in each else each for each in events]
        if run.status == "cancelled" and self.does("old events are forgotten"):
            events = events[1:]
        if self.does("questions are not listed"):
            events = [each for each in events if each["type"] != "run.awaiting"]
        if self.does("cancels are not listed"):
            events = [each for each in events if each["type"] != "run.cancelled"]
        if self.does("events are an object"):
            return Answer(body={"events": dict(enumerate(events))})
        return Answer(body={"events": None if self.does("events are null") else events})

    async def _resume(self, request: Request, id: str) -> Answer:
        if id not in self.runs and self.does("a resume of an unknown run is a 403"):
            raise _Refused(403, "server_error", "no")
        run = self._run(request, id, "questions are open to all callers")
        body = self._json(request)
        if "run_id" not in body and self.does("run_id must be in the body"):
            raise _Refused(422, "invalid_input", "run_id is needed")
        self._refuse_unless("await_resume" in body, "await_resume is needed", "no answer is an empty one")
        self._refuse_unless("mode" in body, "a mode is needed", "a resume without a mode is sync")
        if not self._may_resume(run):
            raise _Refused(403, "server_error", f"Run {id} has no await request")
        at = len(run.events)
        mode = body.get("mode", "sync")
        self._accept_answer(run, body, mode)
        if self.does("a resume begins a new list"):
            run.first_listed = at
        if mode == "stream" and not self.does("a resume is never streamed"):
            return Answer(stream=self._stream(run, 0 if self.does("a resume streams from the start") else at))
        state = run.state
        if mode == "async":
            status = 200 if self.does("async resumes are answered with 200") else 202
            return Answer(status, {**state, "status": "awaiting"} if self.does("a resumed run is awaiting") else state)
        if not self.does("a sync resume does not wait"):
            await self._wait_for_stop(run, at)
        if self.does("a resume changes when the run began"):
            state = {**state, "created_at": "2020-01-01T00:00:00Z"}
        return Answer(body=state)

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
            return self.does("active runs are resumed")
        return run.is_over and self.does("runs that ask nothing are resumed")

    def _accept_answer(self, run: _Run, body: Mapping[str, Any], mode: str) -> None:
        if run.status != "awaiting":
            return
        resumed: Any = body.get("await_resume") or {"message": {"parts": []}}
        text = "".join(part.get("content", "") for part in resumed["message"]["parts"])
        run.state["status"] = "in-progress"
        if not (mode == "async" and self.does("async resumes never continue")):
            run.task = asyncio.get_running_loop().create_task(self._continue(run, text))

    async def _cancel(self, request: Request, id: str) -> Answer:
        if id not in self.runs and self.does("a cancel of an unknown run is a 403"):
            raise _Refused(403, "server_error", "no")
        run = self._run(request, id, "cancels are open to all callers")
        if not self._may_cancel(run):
            run.refused_cancel.set()
            raise _Refused(403, "server_error", f"Run in terminal status {run.status} can't be cancelled")
        if run.status == "awaiting":
            await self._end(run, "cancelled")
        elif not run.is_over and run.task is not None:
            run.task.cancel()
        done = self.does("a cancel has immediate effect")
        state = {**run.state, "status": "cancelled" if done else "cancelling", "await_request": None}
        self.drop_if("a cancelling run has no output", state, "output")
        return Answer(200 if self.does("cancels are answered with 200") else 202, state)

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
        session = body.get("session")
        id = body.get("session_id")
        if session and id and session["id"] != id and not self.does("two sessions are one"):
            raise _Refused(400, "invalid_input", "Session ID mismatch")
        if session and not self.does("sessions in the body are ignored"):
            id = session["id"]
        if id is None and self.does("runs have no session"):
            return None
        if id is None and self.does("runs without a session share one"):
            id = self.shared = self.shared or str(uuid4())
        if id is None or self.does("sessions are always new"):
            id = f"session-{next(self._numbers)}" if self.does("session ids are numbers") else str(uuid4())
        self.sessions.setdefault(id, {"id": id, "history": list[str](), "state": None})
        self.owners.setdefault(id, request.caller)
        self.sessions[id]["base"] = request.base
        return id

    def _record(self, run: _Run) -> None:
        session = self.sessions.get(run.state["session_id"])
        if session is None:
            return
        output = copy.deepcopy(run.state["output"])
        if self.does("outputs are stored without text"):
            output = [{**each, "parts": [self._text("")]} for each in output]
        input = [] if self.does("inputs are not stored") else list(run.input)
        history: list[str] = session["history"]
        if self.does("each run restarts its session"):
            history.clear()
        for message in [*output, *input] if self.does("histories begin with the output") else [*input, *output]:
            id = str(uuid4())
            self.resources[id] = message
            base = "" if self.does("histories are paths") else session["base"]
            history.append(f"{base}/resources/{id}")

    def _session(self, request: Request, id: str) -> Answer:
        if not is_uuid(id) and id not in self.sessions:
            raise _Refused(422, "invalid_input", "no UUID")
        if id not in self.sessions and self.does("unknown sessions exist"):
            return Answer(body={"id": id, "history": []})
        is_mine = self.owners.get(id) == request.caller or self.does("sessions are open to all callers")
        if id not in self.sessions or not is_mine:
            raise _Refused(404, "not_found", f"Session {id} not found")
        session = {name: value for name, value in self.sessions[id].items() if name != "base"}
        self.set_if("sessions have another id", session, id=str(uuid4()))
        self.set_if("states are numbers", session, state=7)
        return Answer(body=session)


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"content_type": "text/plain", "content": text}]}


def _has_end(events: Sequence[Any]) -> bool:
    ends = ("run.completed", "run.failed", "run.cancelled", "run.awaiting")
    return any(event["type"] in ends for event in events)


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
        "agents.list": "no other requirement can pass without it; the dead server covers it",
        "run.sync": "no other requirement on runs can pass without it; the dead server covers it",
    },
)
