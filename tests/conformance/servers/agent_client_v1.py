"""Scripted agent of the Agent Client Protocol, behind a WebSocket: the text of a prompt selects what the agent does."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final

from tests.conformance.servers.kit import (
    _CHECKED,  # pyright: ignore[reportPrivateUsage]
    TRACE,
    ScriptedServer,
    Server,
    Violation,
    options,
)

Message = dict[str, Any]
Result = Message | list[Any] | None

VIOLATIONS: Final = (
    Violation("log lines are messages", "message.json"),
    Violation("ids are numbers", "message.id"),
    Violation("results have errors", "message.one-of"),
    Violation("unknown methods succeed", "message.unknown-method"),
    Violation("extensions succeed", "message.extension"),
    Violation("notifications are answered", "message.notification"),
    Violation("a missing prompt is internal", "message.params"),
    Violation("errors show a stack trace", "safe.errors"),
    Violation("version 2 only", "init.version"),
    Violation("the version is echoed", "init.newest"),
    Violation("no name", "init.info"),
    Violation("unknown members of initialize", "init.unknown-members"),
    Violation("no session id", "session.new", ("*",)),
    Violation("one session for all", "session.distinct", ("~*",)),
    Violation("unknown members of a session", "session.unknown-members"),
    Violation("any session will do", "session.unknown"),
    Violation("an unknown reason", "prompt.answer", ("*",)),
    Violation("no text", "prompt.text", ("load.replay", "prompt.pieces")),
    Violation("late updates", "prompt.order"),
    Violation("updates of no session", "prompt.session", ("*",)),
    Violation("one prompt only", "prompt.next", ("load.continues", "resume.silent", "~cancel.next")),
    Violation("one piece", "prompt.pieces"),
    Violation("failures end the turn", "prompt.failure", is_hidden=True),
    Violation("failures have no message", "prompt.failure", ("form.response",)),
    Violation("links are refused", "prompt.link"),
    Violation("images are refused", "prompt.image"),
    Violation("audio is refused", "prompt.audio"),
    Violation("resources are refused", "prompt.embedded"),
    Violation("one after the other", "prompt.concurrent", ("~*",)),
    Violation("a cancelled turn fails", "cancel.reason", ("permission.cancelled",)),
    Violation("cancelled for ever", "cancel.next"),
    Violation("cancelled in advance", "cancel.idle"),
    Violation("calls begin with an update", "tool.begin"),
    Violation("calls stay open", "tool.end"),
    Violation("one id for all options", "permission.options"),
    Violation("permissions for nothing", "permission.tool-call", ("form.tool",)),
    Violation("permissions are ignored", "permission.allowed"),
    Violation("cancelled permissions end well", "permission.cancelled"),
    Violation("files are read", "client.offered"),
    Violation("nothing is replayed", "load.replay"),
    Violation("null for a loaded session", "load.object"),
    Violation("any session can be loaded", "load.unknown", ("delete.gone", "safe.owner")),
    Violation("loaded sessions are closed", "load.continues"),
    Violation("resume replays", "resume.silent"),
    Violation("empty lists", "list.session"),
    Violation("every directory", "list.directory"),
    Violation("close fails", "close.answer"),
    Violation("deleted sessions stay", "delete.gone"),
    Violation("a mode of its own", "mode.current"),
    Violation("any mode", "mode.set"),
    Violation("a value of its own", "option.current", ("option.set",)),
    Violation("options of one kind", "option.set"),
    Violation("everybody loads", "safe.owner"),
    Violation("codes are texts", "form.response", ("message.*",)),
    Violation("capabilities are texts", "form.initialize"),
    Violation("relative directories", "form.session"),
    Violation("reasons are numbers", "form.prompt", ("*",)),
    Violation("an unknown update", "form.update"),
    Violation("text without a text", "form.content", ("prompt.text",)),
    Violation("an unknown status", "form.tool", ("tool.end",)),
    Violation("entries without a priority", "form.plan"),
    Violation("options without a name", "form.permission"),
    Violation("modes without a name", "form.choices"),
)
_LONG: Final = 10.0
"""Duration of long work in seconds. A client cancels before."""
_MODES: Final = ("ask", "code")


class _Refused(Exception):
    def __init__(self, code: int, text: str = "refused") -> None:
        super().__init__(text)
        self.code = code


class Session:
    def __init__(self, owner: str, cwd: str) -> None:
        self.owner = owner
        self.cwd = cwd
        self.prompts: list[str] = []
        self.mode = _MODES[0]
        self.effort = "low"
        self.is_fast = False
        self.turn: asyncio.Task[Any] | None = None
        self.is_prompted = False
        """True from the arrival of a prompt to its answer."""
        self.is_cancelled = False
        self.is_closed = False


class Agent(ScriptedServer):
    """Server of one agent, whose connections share their sessions."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.sessions: dict[str, Session] = {}
        self.numbers = count(1)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            await receive()
            await send({"type": "websocket.accept"})
            await Connection(self, scope["path"], headers.get("x-api-key", ""), send).serve(receive)


class Connection:
    def __init__(self, agent: Agent, path: str, owner: str, send: Any) -> None:
        self._agent = agent
        self._path = path
        self._owner = owner
        self._raw_send = send
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def does(self, violation: str) -> bool:
        return self._agent.does(violation)

    async def serve(self, receive: Any) -> None:
        try:
            while (event := await receive())["type"] == "websocket.receive":
                text: str = event["text"]
                message: Message = json.loads(text)
                key = (message.get("method", ""), self._path, text.encode())
                _CHECKED.set(self._agent.checked_by[key])
                await self._read(message)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, message: Message) -> None:
        with suppress(Exception):  # the client has closed the connection
            await self._raw_send({"type": "websocket.send", "text": json.dumps({"jsonrpc": "2.0", **message})})

    async def _read(self, message: Message) -> None:
        if "method" not in message:
            waiting = self._waiting.pop(message["id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message.get("result"))
        elif "id" not in message:
            await self._notify(message["method"], message.get("params") or {})
        elif message["method"] == "session/prompt" and not self.does("one after the other"):
            name: Any = message["params"].get("sessionId")
            if isinstance(name, str) and name in self._agent.sessions:
                self._agent.sessions[name].is_prompted = True
            task = asyncio.get_running_loop().create_task(self._answer(message))
            self._tasks.add(task)
        else:
            await self._answer(message)

    async def _notify(self, method: str, params: Message) -> None:
        if method != "session/cancel":
            if self.does("notifications are answered"):
                await self._send({"id": None, "error": {"code": -32601, "message": "unknown"}})
            return
        session = self._agent.sessions.get(params["sessionId"])
        if session is None:
            return
        if not session.is_prompted:
            session.is_cancelled = self.does("cancelled in advance")
            return
        session.is_cancelled = True
        if session.turn is not None:
            session.turn.cancel()

    async def _answer(self, message: Message) -> None:
        request_id, params = message["id"], message["params"]
        if isinstance(request_id, str) and self.does("ids are numbers"):
            request_id = 0
        try:
            result = await self._call(message["method"], params)
        except _Refused as error:
            code: Any = str(error.code) if self.does("codes are texts") else error.code
            text: Message = {} if self.does("failures have no message") and str(error) == "failed" else {"message": ""}
            await self._send({"id": request_id, "error": {"code": code, **{name: str(error) for name in text}}})
            return
        answer: Message = {"id": request_id, "result": result}
        if message["method"] == "session/new" and self.does("results have errors"):
            answer["error"] = {"code": 0, "message": "none"}
        if message["method"] == "session/new" and self.does("log lines are messages"):
            await self._raw_send({"type": "websocket.send", "text": "INFO a session was created"})
        await self._send(answer)
        if message["method"] == "session/prompt" and self.does("late updates"):
            await self._update(params["sessionId"], "agent_message_chunk", content={"type": "text", "text": "P.S."})

    async def _call(self, method: str, params: Message) -> Result:
        calls: Mapping[str, Callable[[Message], Coroutine[Any, Any, Result]]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
        }
        if method in calls:
            return await calls[method](params)
        name = "extensions succeed" if method.startswith("_") else "unknown methods succeed"
        if self.does(name):
            return {}
        raise _Refused(-32601)

    # Initialization and sessions

    async def _initialize(self, params: Message) -> Result:
        if "unheardOf" in params and self.does("unknown members of initialize"):
            raise _Refused(-32602)
        version = 2 if self.does("version 2 only") else 1
        if params["protocolVersion"] != 1 and self.does("the version is echoed"):
            version = params["protocolVersion"]
        yes: Any = "yes" if self.does("capabilities are texts") else True
        capabilities: Message = {
            "loadSession": True,
            "promptCapabilities": {"image": yes, "audio": True, "embeddedContext": True},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
        }
        info: Message = {} if self.does("no name") else {"agentInfo": {"name": "scripted", "version": "1"}}
        return {"protocolVersion": version, "agentCapabilities": capabilities, "authMethods": [], **info}

    async def _new(self, params: Message) -> Result:
        if "unheardOf" in params and self.does("unknown members of a session"):
            raise _Refused(-32602)
        name = "s" if self.does("one session for all") else f"s{next(self._agent.numbers)}"
        session = self._agent.sessions[name] = Session(self._owner, params["cwd"])
        found: Message = {} if self.does("no session id") else {"sessionId": name}
        return {**found, **self._choices(session)}

    def _choices(self, session: Session) -> Message:
        def names(name: str) -> Message:
            return {} if self.does("modes without a name") else {"name": name}

        return {
            "modes": {
                "currentModeId": "other" if self.does("a mode of its own") else session.mode,
                "availableModes": [{"id": each, **names(each)} for each in _MODES],
            },
            "configOptions": self._options(session),
        }

    def _options(self, session: Session) -> list[Any]:
        values = [{"value": each, "name": each} for each in ("low", "high")]
        effort = "none" if self.does("a value of its own") else session.effort
        select = {"id": "effort", "name": "Effort", "type": "select", "currentValue": effort, "options": values}
        return [select, {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": session.is_fast}]

    def _find(self, params: Message, lenient: str) -> Session:
        name: Any = params.get("sessionId")
        if not isinstance(name, str):
            raise _Refused(-32602, TRACE if self.does("errors show a stack trace") else "sessionId is no text")
        session = self._agent.sessions.get(name)
        is_owner = session is not None and (session.owner == self._owner or self.does("everybody loads"))
        if session is not None and is_owner:
            return session
        if self.does(lenient):
            return Session(self._owner, "/tmp")
        raise _Refused(-32002)

    async def _load(self, params: Message) -> Result:
        session = self._find(params, "any session can be loaded")
        if not self.does("nothing is replayed"):
            await self._replay(params["sessionId"], session)
        session.is_closed = self.does("loaded sessions are closed")
        return None if self.does("null for a loaded session") else self._choices(session)

    async def _resume(self, params: Message) -> Result:
        session = self._find(params, "any session can be loaded")
        if self.does("resume replays"):
            await self._replay(params["sessionId"], session)
        return self._choices(session)

    async def _replay(self, name: str, session: Session) -> None:
        for text in session.prompts:
            await self._update(name, "user_message_chunk", content={"type": "text", "text": text})
            if not self.does("no text"):
                await self._update(name, "agent_message_chunk", content={"type": "text", "text": "Hello"})

    async def _list(self, params: Message) -> Result:
        every = [] if self.does("empty lists") else [*self._agent.sessions.items()]
        cwd = None if self.does("every directory") else params.get("cwd")
        found = [(name, each) for name, each in every if each.owner == self._owner and cwd in (None, each.cwd)]

        def mine(each: Session) -> str:
            return "tmp" if self.does("relative directories") else each.cwd

        return {"sessions": [{"sessionId": name, "cwd": mine(each)} for name, each in found]}

    async def _close(self, params: Message) -> Result:
        self._find(params, "any session will do")
        if self.does("close fails"):
            raise _Refused(-32603)
        return {}

    async def _delete(self, params: Message) -> Result:
        self._find(params, "any session will do")
        if not self.does("deleted sessions stay"):
            del self._agent.sessions[params["sessionId"]]
        return {}

    async def _set_mode(self, params: Message) -> Result:
        session = self._find(params, "any session will do")
        if params["modeId"] not in _MODES and not self.does("any mode"):
            raise _Refused(-32602)
        session.mode = params["modeId"]
        return {}

    async def _set_option(self, params: Message) -> Result:
        session = self._find(params, "any session will do")
        if params["configId"] == "fast":
            session.is_fast = params["value"]
        else:
            session.effort = params["value"]
        every = self._options(session)
        return {"configOptions": every[:1] if self.does("options of one kind") else every}

    # Prompts

    async def _update(self, session_id: str, kind: str, **members: Any) -> None:
        name = "elsewhere" if self.does("updates of no session") else session_id
        if kind == "agent_message_chunk" and self.does("text without a text"):
            members = {"content": {"type": "text"}, "_meta": members}
        params = {"sessionId": name, "update": {"sessionUpdate": kind, **members}}
        await self._send({"method": "session/update", "params": params})

    async def _request(self, method: str, params: Message) -> Any:
        number = next(self._agent.numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        await self._send({"id": number, "method": method, "params": params})
        return await future

    async def _prompt(self, params: Message) -> Result:
        session = self._find(params, "any session will do")
        if "prompt" not in params:
            raise _Refused(-32603 if self.does("a missing prompt is internal") else -32602)
        refused = {
            "resource_link": "links are refused",
            "image": "images are refused",
            "audio": "audio is refused",
            "resource": "resources are refused",
        }
        for block in params["prompt"]:
            if block["type"] in refused and self.does(refused[block["type"]]):
                raise _Refused(-32602)
        if session.is_closed or (session.prompts and self.does("one prompt only")):
            raise _Refused(-32002)
        text: str = params["prompt"][0]["text"]
        session.prompts.append(text)
        if session.is_cancelled:
            session.is_cancelled = session.is_prompted = False
            return {"stopReason": "cancelled"}
        session.turn = asyncio.get_running_loop().create_task(self._act(params["sessionId"], text))
        try:
            reason = await session.turn
        except asyncio.CancelledError:
            if not session.is_cancelled:
                raise
            session.is_cancelled = False
            if self.does("a cancelled turn fails"):
                raise _Refused(-32603, "cancelled") from None
            session.is_closed = self.does("cancelled for ever")
            reason = "cancelled"
        finally:
            session.turn, session.is_prompted = None, False
        if self.does("reasons are numbers"):
            return {"stopReason": 1}
        return {"stopReason": "done" if self.does("an unknown reason") else reason}

    async def _act(self, name: str, text: str) -> str:
        if self.does("an unknown update"):
            await self._update(name, "mood", value=1)
        entry: Message = {"content": "plan", "status": "completed"}
        priority: Message = {} if self.does("entries without a priority") else {"priority": "low"}
        await self._update(name, "plan", entries=[{**entry, **priority}])
        match text:
            case "work long":
                await asyncio.sleep(_LONG)
            case "fail":
                if not self.does("failures end the turn"):
                    raise _Refused(-32603, "failed")
            case "use a tool":
                await self._use_tool(name)
            case "may I":
                return await self._ask(name)
            case _:
                pass
        if self.does("files are read"):
            await self._request("fs/read_text_file", {"sessionId": name, "path": "/etc/hosts"})
        for piece in ("Hello",) if self.does("one piece") else ("He", "llo"):
            if not self.does("no text"):
                await self._update(name, "agent_message_chunk", content={"type": "text", "text": piece})
        return "end_turn"

    async def _use_tool(self, name: str) -> None:
        call = f"c{next(self._agent.numbers)}"
        if not self.does("calls begin with an update"):
            await self._update(name, "tool_call", toolCallId=call, title="count", status="in_progress")
        status = "in_progress" if self.does("calls stay open") else "completed"
        if self.does("an unknown status"):
            status = "done"
        await self._update(name, "tool_call_update", toolCallId=call, status=status)

    async def _ask(self, name: str) -> str:
        ids = ("yes", "yes") if self.does("one id for all options") else ("yes", "no")
        options_: list[Message] = [
            {"optionId": ids[0], "kind": "allow_once"},
            {"optionId": ids[1], "kind": "reject_once"},
        ]
        if not self.does("options without a name"):
            options_ = [{**each, "name": each["kind"]} for each in options_]
        call: Message = {} if self.does("permissions for nothing") else {"toolCallId": f"c{next(self._agent.numbers)}"}
        params = {"sessionId": name, "toolCall": call, "options": options_}
        asking = asyncio.ensure_future(self._request("session/request_permission", params))
        try:
            answer: Any = await asking
        except asyncio.CancelledError:
            if self.does("cancelled permissions end well"):
                return "end_turn"
            raise
        if answer["outcome"]["outcome"] == "cancelled" or self.does("permissions are ignored"):
            return "cancelled"
        return "end_turn"


SERVER: Final = Server(
    set="agent-client-v1",
    make=Agent,
    violations=VIOLATIONS,
    path="/agent-client/agent",
    options=options(
        plain="Hello",
        stream="Hello",
        question="Hello",
        fail="fail",
        tools="use a tool",
        files="Hello",
        approval="may I",
        long="work long",
        timeout=2.0,
    ),
    unbroken={"process.exit": "the server is not a process"},
)
