"""Scripted server of LangChain's Agent Protocol 0.1.6, with runs in both layouts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs
from uuid import uuid4

from babelgate.conformance.trigger import Trigger
from tests.conformance.servers.agent_protocol_violations import VIOLATIONS
from tests.conformance.servers.kit import Answer, Request, Server, options, sse
from tests.conformance.servers.langchain_commands import Commands, endless, messages_of
from tests.conformance.servers.langchain_work import Message, Refused, Run, State, Thread, has, modes_of

_MODES: Final = ("values", "messages", "messages-tuple", "updates", "debug", "custom")
_ROLES: Final = {"human": "user", "ai": "assistant"}
README_ONLY: Final = "the layout of the README alone"
OPENAPI_ONLY: Final = "the layout of the OpenAPI document alone"
_README: Final = ("below.", "form.thread-run", "form.error-text")
_OF_README: Final = {each.name for each in VIOLATIONS if each.breaks.startswith(_README)}


class AgentProtocol(Commands):
    """Server with two agents. The text of a message selects what an agent does."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        # A violation is tested in one layout, because both would take the judge twice as long.
        self.has_readme = violation in ("", README_ONLY) or violation in _OF_README
        self.has_openapi = violation != README_ONLY and violation not in _OF_README
        self.agents = [self._agent("first"), self._agent("second")]

    def _agent(self, name: str) -> dict[str, Any]:
        can = {"ap.io.messages": "yes" if self.does("capabilities are texts") else True, "ap.io.streaming": True}
        return {"agent_id": f"agent-{name}", "name": name, "metadata": {}, "capabilities": can}

    def member(self, name: str) -> str:
        first, *rest = name.split("_")
        return first + "".join(each.capitalize() for each in rest)

    # Views

    def error(self, status: int, text: str) -> Refused:
        if not self.has_openapi and not self.does("errors of the README are objects"):
            return Refused(status, text)
        code: Any = status if self.does("codes of errors are numbers") else "refused"
        return Refused(status, {"code": code, "message": text})

    def message_view(self, message: Message) -> Any:
        if self.does("messages have types"):
            return {"type": message["role"], "content": self.text(message), "id": message["id"]}
        return {"role": _ROLES[message["role"]], "content": self.text(message), "id": message["id"]}

    def thread_view(self, thread: Thread) -> dict[str, Any]:
        status = "waiting" if self.does("threads wait") and thread.status == "interrupted" else thread.status
        view: dict[str, Any] = {
            "thread_id": thread.id,
            "created_at": thread.created,
            "updated_at": thread.updated,
            "metadata": thread.metadata,
            "status": status,
            "values": dict(thread.values),
            "messages": [self.message_view(each) for each in thread.messages],
        }
        self.set_if("messages are in the values, too", view["values"], messages=view["messages"])
        self.set_if("threads have no messages", view, messages=[])
        self.drop_if("threads have no date", view, "updated_at")
        return view

    def state_view(self, state: State) -> dict[str, Any]:
        id = "1" if self.does("checkpoints are numbered") else state.id
        return {"checkpoint": {"checkpoint_id": id}, **self._split(state), "metadata": state.metadata}

    def _split(self, state: State | None) -> dict[str, Any]:
        messages = state.messages if state else []
        return {
            "values": dict(state.values if state else {}),
            "messages": [self.message_view(each) for each in messages],
        }

    def run_view(self, run: Run) -> dict[str, Any]:
        status = {"running": "pending", "asking": "interrupted"}.get(run.status, run.status)
        if run.status == "running" and self.does("runs are running"):
            status = "running"
        if run.status == "asking" and self.does("runs that ask are a success"):
            status = "success"
        view: dict[str, Any] = {
            "run_id": run.id,
            "thread_id": str(uuid4()) if self.does("runs name another thread") else run.thread.id,
            "agent_id": run.agent,
            "created_at": run.created,
            "updated_at": run.created,
            "status": status,
            "metadata": {} if self.does("metadata of runs is lost") else run.body.get("metadata") or {},
            "kwargs": {},
            "multitask_strategy": run.body.get("multitask_strategy", "reject"),
        }
        self.drop_if("runs have no date", view, "created_at")
        self.set_if("agents of runs are names", view, agent_id="first")
        self.drop_if("runs have no kwargs", view, "kwargs")
        return view

    def wait_view(self, run: Run) -> dict[str, Any]:
        state = run.thread.states[-1] if run.thread.states else None
        view = {"run": self.run_view(run), **self._split(state)}
        if self.does("a wait answers with values only"):
            return {"values": view["values"], "messages": view["messages"]}
        self.set_if("values of a wait are a list", view, values=[])
        return view

    # Routes

    async def route(self, request: Request, path: Sequence[str]) -> Any:
        match path:
            case ["agents", *rest]:
                return self._agents(request, rest)
            case ["threads", _, "runs", *rest] if self.has_readme:
                return await self._runs(request, path[1], rest)
            case ["threads", *rest]:
                return await self._threads(request, rest)
            case ["runs", *rest] if self.has_openapi or rest in ([], ["wait"], ["stream"]):
                return await self._runs(request, None, rest)
            case ["store", *rest]:
                return self._store(request, rest)
            case _:
                raise self.error(404, "Not Found")

    def _agents(self, request: Request, path: Sequence[str]) -> Any:
        match path:
            case ["search"]:
                body = self.body(request)
                name = body.get("name")
                found = (
                    self.agents
                    if self.does("names are not searched")
                    else [each for each in self.agents if name in (None, each["name"])]
                )
                if self.does("agents have no pages"):
                    return found
                if self.does("agents are in an object"):
                    return {"agents": found}
                return found[body.get("offset", 0) :][: body.get("limit", 10)]
            case [id, *rest]:
                agent = next((each for each in self.agents if each["agent_id"] == id), None)
                if agent is None and self.does("unknown agents are the first"):
                    agent = self.agents[0]
                if agent is None:
                    raise self.error(404, "Agent not found")
                return self._schemas(agent) if rest == ["schemas"] else self._describe(agent)
            case _:
                raise self.error(404, "Not Found")

    def _describe(self, agent: Mapping[str, Any]) -> Any:
        return {**agent, "name": "an agent"} if self.does("descriptions differ from the list") else agent

    def _schemas(self, agent: Mapping[str, Any]) -> Any:
        self.refuse_if("agents have no schemas", 404, "Not Found")
        schema: Any = "object" if self.does("schemas are texts") else {"type": "object"}
        return {"agent_id": agent["agent_id"], "input_schema": schema, "output_schema": schema}

    # Threads

    async def _threads(self, request: Request, path: Sequence[str]) -> Any:
        match request.method, path:
            case "POST", []:
                await self.pause_in_race(request, None)
                return self.thread_view(self.create_thread(request))
            case "POST", ["search"]:
                return [self.thread_view(each) for each in self.search_threads(request)]
            case "POST", [id, "copy"]:
                return self.thread_view(self.copy_thread(request, id))
            case "GET", [id, "history"]:
                return self._history(request, id)
            case "POST", [id, "commands"]:
                return self.command(request, id)
            case "POST", [id, "stream"]:
                return self.event_stream(request, id)
            case _, [id]:
                return self.answer_thread(request, id)
            case _:
                raise self.error(404, "Not Found")

    def _history(self, request: Request, id: str) -> Any:
        if id not in self.threads and self.does("unknown threads have an empty history"):
            return []
        limit = int(request.query.get("limit", "10"))
        states = self.history(self.thread(request, id), limit, request.query.get("before"))
        return [self.state_view(each) for each in states]

    def patch(self, request: Request, thread: Thread) -> None:
        body = self.body(request)
        if "metadata" in body:
            self.patch_metadata(thread, body["metadata"])
        if not {"values", "messages"} & body.keys():
            if self.does("a patch of metadata is a state"):
                self.add_state(thread, "update")
            return
        checkpoint: dict[str, Any] = body.get("checkpoint") or {}
        base = next((each for each in thread.states if each.id == checkpoint.get("checkpoint_id")), None)
        if base is None or self.does("checkpoints of a patch are ignored"):
            base = thread.states[-1] if thread.states else None
        values = dict(body.get("values") or {})
        if base is not None and not self.does("values are replaced"):
            values = {**base.values, **values}
        messages = [*(base.messages if base else []), *messages_of(body.get("messages") or [])]
        if self.does("messages of a patch are lost"):
            messages = base.messages if base else []
        if self.does("a patch replaces the last state") and thread.states:
            thread.states.pop()
        self.add_state(thread, "update", base=base, values=values, messages=messages)

    # Runs

    async def _runs(self, request: Request, thread_id: str | None, path: Sequence[str]) -> Any:
        match request.method, path:
            case "POST", []:
                await self.pause_in_race(request, thread_id)
                if self.does("runs in the background are waited for"):
                    return self.run_view(await self._wait_for(self._create(request, thread_id)))
                return self.run_view(self._create(request, thread_id))
            case "POST", ["wait"]:
                run = await self._wait_for(self._create(request, thread_id))
                view = self.wait_view(run)
                self._delete_own_thread(run)
                return {**view, "messages": []} if self.does("a run with a wait has no messages") else view
            case "POST", ["stream"]:
                return self._stream(request, thread_id)
            case "POST", ["search"]:
                return self._search_runs(request)
            case "GET", [] if thread_id is not None:
                return self._list_runs(request, thread_id)
            case _, [id, *rest]:
                if request.method == "POST" and self.does("unknown runs are cancelled") and not self.is_run(id):
                    return Answer(204)
                if request.method == "DELETE" and self.does("unknown runs are deleted") and not self.is_run(id):
                    return Answer(204)
                if request.method == "GET" and self.does("unknown runs are empty") and not (self.is_run(id) or rest):
                    return self.run_view(Run(id, Thread(str(uuid4()), "", {}), "", {}, "", []))
                return await self._run(request, self.run(request, thread_id, id), rest)
            case _:
                raise self.error(404, "Not Found")

    async def _run(self, request: Request, run: Run, path: Sequence[str]) -> Any:
        match request.method, path:
            case "GET", []:
                view = self.run_view(run)
                return {**view, "run_id": str(uuid4())} if self.does("get returns another run") else view
            case "DELETE", []:
                self.delete_run(run)
                return Answer(204)
            case "GET", ["wait"]:
                return await self.join(run)
            case "GET", ["stream"]:
                if run.ended.is_set() and self.does("streams of ended runs stay open"):
                    return Answer(stream=endless())
                if self.does("runs cannot be joined") and not run.ended.is_set():
                    raise self.error(404, "Not Found")
                return Answer(stream=self.stream(run, ("values",), self._sse, after=len(run.frames) - 1))
            case "POST", ["cancel"]:
                await self.cancel_run(request, run)
                return Answer(202 if self.does("cancels are accepted") else 204)
            case _:
                raise self.error(404, "Not Found")

    async def _wait_for(self, run: Run) -> Run:
        await run.ended.wait()
        return run

    def _delete_own_thread(self, run: Run) -> None:
        """Delete the thread that was created for a run, unless the run asks to keep it."""
        is_own = run.thread.extra.get("is_own")
        on_completion = run.body.get("on_completion", "delete")
        is_deleted = on_completion == "delete" or self.does("threads of runs are never kept")
        if is_own and is_deleted and not self.does("threads of runs are kept"):
            del self.threads[run.thread.id]

    def _create(self, request: Request, thread_id: str | None) -> Run:
        body = self.body(request)
        id = thread_id or body.get("thread_id")
        agent = body.get("agent_id", "agent-first")
        self.refuse_if("a run needs an agent", 422, "agent_id is missing", when="agent_id" not in body)
        if all(each["agent_id"] != agent for each in self.agents) and not self.does("unknown agents run"):
            raise self.error(404, "Agent not found")
        thread = self.thread_of_run(request, id, body)
        messages = messages_of(body.get("messages") or [])
        text = " ".join(each["text"] for each in messages)
        run = Run(str(uuid4()), thread, agent, body, text, messages)
        self.add_run(run, body.get("multitask_strategy", "reject"))
        return run

    def _search_runs(self, request: Request) -> Any:
        body = self.body(request)
        limit, offset = self.page_bounds(body, 10)
        runs = [run for each in self.threads.values() if self.is_shown_to(each, request) for run in each.runs]
        wanted: dict[str, Any] = body.get("metadata") or {}
        tests: dict[str, Callable[[dict[str, Any]], bool]] = {
            "threads of runs are not searched": lambda run: body.get("thread_id") in (None, run["thread_id"]),
            "states of runs are not searched": lambda run: body.get("status") in (None, run["status"]),
            "agents of runs are not searched": lambda run: body.get("agent_id") in (None, run["agent_id"]),
            "metadata of runs is not searched": lambda run: has(run["metadata"], wanted),
        }
        views = [self.run_view(each) for each in reversed(runs)]
        for violation, is_wanted in tests.items():
            if not self.does(violation):
                views = [each for each in views if is_wanted(each)]
        return views if self.does("runs have no pages") else views[offset : offset + limit]

    def _list_runs(self, request: Request, thread_id: str) -> Any:
        runs = [self.run_view(each) for each in reversed(self.thread(request, thread_id).runs)]
        if self.does("runs that ended are not listed"):
            runs = [each for each in runs if each["status"] == "pending"]
        if self.does("runs of a thread have no pages"):
            return runs
        return runs[int(request.query.get("offset", "0")) :][: int(request.query.get("limit", "10"))]

    # Streams

    def _stream(self, request: Request, thread_id: str | None) -> Answer:
        body = self.body(request)
        modes = modes_of(body)
        self.refuse_unless("any text is a stream mode", 422, "stream_mode", when=not set(modes) <= set(_MODES))
        if self.does("only the first mode is streamed"):
            modes = modes[:1]
        run = self._create(request, thread_id)
        events = ["messages" if each == "messages-tuple" else each for each in modes]
        events = [each for each in events if each != "updates" or not self.does("updates are not streamed")]
        headers = {"content-type": "text/plain"} if self.does("streams are text") else {}
        if self.does("streams are text"):
            return Answer(body="".join(f"{event}: {data}" for event, data in run.frames), headers=headers)
        return Answer(stream=self.creator_stream(run, events, self._sse, self.on_disconnect(body, "cancel")))

    def _sse(self, number: int, event: str, data: Any) -> bytes:
        if self.does("data is no JSON"):
            return f"event: {event}\ndata: {data}\n\n".encode()
        return sse(data, event=event, id=str(number))

    # Store

    def _store(self, request: Request, path: Sequence[str]) -> Any:
        match request.method, path:
            case "PUT", ["items"]:
                self.put_item(request)
                return Answer(200 if self.does("items are answered with 200") else 204)
            case "GET", ["items"]:
                query = request.raw_query
                found = self.get_item(request, parse_qs(query).get("namespace", []))
                if found is None:
                    raise self.error(404, "Item not found")
                return found
            case "DELETE", ["items"]:
                if not self.delete_item(request):
                    raise self.error(404, "Item not found")
                return Answer(204)
            case "POST", ["items", "search"]:
                return {"items": self.search_items(request)}
            case "POST", ["namespaces"]:
                found = self.namespaces(request)
                return {"namespaces": found} if self.does("namespaces are in an object") else found
            case _:
                raise self.error(404, "Not Found")


SERVER: Final = Server(
    set="agent-protocol-0.1.6",
    make=AgentProtocol,
    violations=VIOLATIONS,
    is_large=True,
    variants=(README_ONLY, OPENAPI_ONLY),
    options=options(
        timeout=4.0,
        plain=Trigger("Hello", agent="second"),
        stream="stream of words",
        question=Trigger("ask me", answer="Ada"),
        fail="fail",
        long="long",
    ),
    unbroken={
        "thread.create": "no other requirement can pass without it; the dead server covers it",
        "run.create": "no other requirement on runs can pass without it; the dead server covers it",
    },
)
