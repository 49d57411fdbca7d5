"""A scripted server of LangGraph Platform, as langgraph-api 0.16 is."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from babelgate.conformance.trigger import Trigger
from tests.conformance.servers.kit import Answer, Request, Server, options, sse
from tests.conformance.servers.langchain_commands import said, silent
from tests.conformance.servers.langchain_work import Refused, Run, State, Thread, is_uuid, modes_of, now
from tests.conformance.servers.langgraph_shown import GRAPHS, Shown, assistant_id
from tests.conformance.servers.langgraph_violations import VIOLATIONS

_MODES: Final = (
    *("values", "messages", "messages-tuple", "updates", "events"),
    *("tasks", "checkpoints", "debug", "custom"),
)


class Platform(Shown):
    """Its agents: what a text says tells what they do."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.assistants = [self._assistant(graph) for graph in GRAPHS]

    def _assistant(self, graph: str) -> dict[str, Any]:
        id = str(uuid4()) if self.does("assistants have random ids") else assistant_id(graph)
        made = now()
        return {
            **{"assistant_id": id, "graph_id": graph, "config": {}, "metadata": {"created_by": "system"}},
            **{"created_at": made, "updated_at": made, "version": "1" if self.does("versions are texts") else 1},
        }

    # Routes

    async def handle(self, request: Request) -> Answer:
        path = [unquote(each) for each in request.path.split("/") if each]
        try:
            made = await self._routed(request, path)
        except Refused as error:
            return _json(error.body, error.status)
        if isinstance(made, Answer):
            return made
        return Answer(200, json.dumps(made)) if self.does("answers are plain text") else _json(made)

    async def _routed(self, request: Request, path: Sequence[str]) -> Any:
        match path:
            case ["ok"]:
                return {"ok": "yes" if self.does("ok is a text") else True}
            case ["info"]:
                return self._info()
            case ["assistants", *rest]:
                return self._assistants(request, rest)
            case ["threads", id, "runs", *rest]:
                return await self._runs(request, id, rest)
            case ["threads"] if request.method == "POST":
                await self.hesitate(request, None)
                return self.shown_thread(self.create_thread(request))
            case ["threads", *rest]:
                return self._threads(request, rest)
            case ["runs", "batch"]:
                return self._batch(request)
            case ["runs", "cancel"]:
                return self._cancel_several(request)
            case ["runs", *rest]:
                return await self._runs(request, None, rest)
            case ["store", *rest]:
                return self._store(request, rest)
            case _:
                raise self.error(404, "Not Found")

    def _info(self) -> Any:
        shown: dict[str, Any] = {"version": "0.16.7", "flags": {"assistants": True}}
        self.drop_if("there is no version", shown, "version")
        self.drop_if("there are no flags", shown, "flags")
        return shown

    # Assistants

    def _assistants(self, request: Request, path: Sequence[str]) -> Any:
        match path:
            case ["search"]:
                return self._found_assistants(request)
            case ["count"]:
                number = len(self.assistants) + self.does("counts are wrong")
                return {"count": number} if self.does("counts are objects") else number
            case [id, *rest]:
                return self._described(id, rest)
            case _:
                raise self.error(404, "Not Found")

    def _found_assistants(self, request: Request) -> Any:
        body = self.body(request)
        graph = body.get("graph_id")
        found = [
            each for each in self.assistants if graph in (None, each["graph_id"]) or self.does("graphs differ not")
        ]
        if self.does("assistants are in an object"):
            return {"assistants": found}
        start = 0 if self.does("assistants have no pages") else body.get("offset", 0)
        return found[start:][: body.get("limit", 10)]

    def _described(self, id: str, path: Sequence[str]) -> Any:
        found = next((each for each in self.assistants if each["assistant_id"] == id), None)
        if found is None and self.does("unknown assistants are the first"):
            found = self.assistants[0]
        if found is None:
            raise self.error(404 if is_uuid(id) else 422, "Not Found")
        match path:
            case []:
                return {**found, "graph_id": "a graph"} if self.does("assistants differ from the list") else found
            case ["schemas"]:
                graph = None if self.does("schemas are nobody's") else found["graph_id"]
                wrong = self.does("schemas are texts")
                return {"graph_id": graph, "input_schema": "object" if wrong else {"type": "object"}}
            case ["graph"]:
                return self._graph()
            case ["subgraphs"]:
                return [] if self.does("subgraphs are a list") else {}
            case _:
                raise self.error(404, "Not Found")

    def _graph(self) -> Any:
        names = ["__start__", "agent", "__end__"]
        nodes: list[Any] = names if self.does("nodes are names") else [{"id": each} for each in names]
        if self.does("edges lead nowhere"):
            nodes = nodes[:-1]
        edges = [{"source": "__start__", "target": "agent"}, {"source": "agent", "target": "__end__"}]
        return {"nodes": nodes, "edges": edges}

    # Threads

    def _threads(self, request: Request, path: Sequence[str]) -> Any:
        match request.method, path:
            case "POST", ["search"]:
                return self._found_threads(request)
            case "POST", ["count"]:
                number = len(self.matching(request, self.body(request)))
                return 7 if self.does("threads are not counted") else number
            case "POST", [id, "copy"]:
                return self.shown_thread(self.copy_thread(request, id))
            case "POST", [id, "commands"]:
                return self.command(request, id)
            case "POST", [id, "stream", "events"]:
                return self.told(request, id)
            case _, [id, "history"]:
                return self._history(request, id)
            case _, [id, "state", *rest]:
                return self._state(request, id, rest)
            case _, [id]:
                return self.looked_at_thread(request, id)
            case _:
                raise self.error(404, "Not Found")

    def _found_threads(self, request: Request) -> Answer:
        body = self.body(request)
        limit, offset = self.page(body, 10)
        found = self.matching(request, body)
        ids = body.get("ids")
        if ids is not None and not self.does("ids are not searched"):
            found = [each for each in found if each.id in ids]
        if body.get("sort_order", "desc") == "desc" or self.does("threads are never sorted"):
            found.reverse()
        shown = [self.shown_thread(each) for each in self.cut(found, limit, offset)]
        wanted = body.get("select")
        if wanted is not None and not self.does("select is not looked at"):
            shown = [{name: each[name] for name in wanted} for each in shown]
        has_more = offset + limit < len(found)
        headers = {"x-pagination-total": str(offset + limit + 1 if has_more else len(found))}
        if has_more:
            headers["x-pagination-next"] = str(offset + limit)
        return _json(shown, headers={} if self.does("pages say nothing") else headers, is_text=self.is_text)

    @property
    def is_text(self) -> bool:
        return self.does("answers are plain text")

    def patch(self, request: Request, thread: Thread) -> Answer | None:
        self.patch_metadata(thread, self.body(request).get("metadata") or {})
        is_minimal = request.headers.get("prefer") == "return=minimal" and not self.does("Prefer is not looked at")
        return Answer(204) if is_minimal else None

    def _history(self, request: Request, id: str) -> Any:
        if id not in self.threads and self.does("unknown threads have an empty history"):
            return []
        thread = self.thread(request, id)
        if request.method == "POST":
            body = self.body(request)
            before: dict[str, Any] = body.get("before") or {"configurable": {}}
            wanted: str | None = before["configurable"].get("checkpoint_id")
            if self.does("before in a body is not looked at"):
                wanted = None
            states = self.history(thread, body.get("limit", 1), wanted)
        else:
            states = self.history(thread, int(request.query.get("limit", "10")), request.query.get("before"))
        return [self.shown_state(thread, each) for each in states]

    # State

    def _state(self, request: Request, id: str, path: Sequence[str]) -> Any:
        if id not in self.threads and self.does("unknown threads have an empty state"):
            return self.shown_state(Thread(id, "", {}), None)
        thread = self.thread(request, id)
        match request.method, path:
            case "GET", []:
                return self._newest(thread)
            case "GET", [checkpoint]:
                last = thread.states[-1] if thread.states else None
                newest = self.does("older states are the newest")
                return self.shown_state(thread, last if newest else self._at(thread, checkpoint))
            case "POST", ["checkpoint"]:
                wanted: dict[str, Any] = self.body(request).get("checkpoint") or {}
                last = thread.states[-1] if thread.states else None
                newest = self.does("checkpoints are the newest")
                return self.shown_state(thread, last if newest else self._at(thread, wanted.get("checkpoint_id")))
            case "POST", []:
                return self._update(request, thread)
            case _:
                raise self.error(404, "Not Found")

    def _newest(self, thread: Thread) -> Any:
        shown = self.shown_state(thread, thread.states[-1] if thread.states else None)
        if thread.states and self.does("the state has a checkpoint of its own"):
            shown["checkpoint"] = self.checkpoint(thread, str(uuid4()))
        self.set_if("the state has no messages", shown, values={}, when=thread.states)
        return shown

    def _at(self, thread: Thread, id: Any) -> State:
        found = next((each for each in thread.states if each.id == id), None)
        if found is None:
            raise self.error(404, "Checkpoint not found")
        return found

    def _update(self, request: Request, thread: Thread) -> Any:
        self.refuse_unless("busy threads are changed", 409, "the thread has runs", when=thread.status == "busy")
        body = self.body(request)
        values: dict[str, Any] = body.get("values") or {}
        checkpoint: dict[str, Any] = body.get("checkpoint") or {}
        base = self._at(thread, checkpoint["checkpoint_id"]) if checkpoint else thread.states[-1]
        if self.does("branches begin with the newest"):
            base = thread.states[-1]
        before = [] if self.does("updates take the place of what was said") else base.messages
        messages = [*before, *said(values.get("messages") or [])]
        if self.does("updates take the place of the state"):
            thread.states.pop()
        made = self.add_state(thread, "update", base=base, messages=messages)
        id = str(uuid4()) if self.does("updates are answered with another checkpoint") else made.id
        shown = self.checkpoint(thread, id)
        return shown if self.does("updates are answered with the bare checkpoint") else {"checkpoint": shown}

    # Runs

    async def _runs(self, request: Request, thread_id: str | None, path: Sequence[str]) -> Any:
        match request.method, path:
            case "POST", []:
                await self.hesitate(request, thread_id)
                run = self._create(request, thread_id)
                if self.does("runs in the background are waited for"):
                    await run.ended.wait()
                return self._located(run, self.shown_run(run))
            case "POST", ["wait"]:
                run = self._create(request, thread_id)
                await run.ended.wait()
                shown = self.shown_wait(run)
                self.set_if("a run that is waited for says nothing", shown, messages=[])
                return self._located(run, shown, "join")
            case "POST", ["stream"]:
                return self._stream(request, thread_id)
            case "GET", [] if thread_id is not None:
                return self._listed(request, thread_id)
            case _, [id, *rest]:
                if not self.is_run(id):
                    return self._unknown(request, id, rest)
                anywhere = request.method == "GET" and not rest and self.does("runs are found below any thread")
                return await self._run(request, self.run(request, None if anywhere else thread_id, id), rest)
            case _:
                raise self.error(404, "Not Found")

    def _unknown(self, request: Request, id: str, path: Sequence[str]) -> Any:
        if request.method == "POST" and self.does("unknown runs are cancelled"):
            return Answer(202)
        if request.method == "DELETE" and self.does("unknown runs are deleted"):
            return Answer(204)
        if path == ["join"] and self.does("unknown runs have said nothing"):
            return {}
        if request.method == "GET" and not path and self.does("unknown runs are empty"):
            return self.shown_run(Run(id, Thread(str(uuid4()), "", {}), assistant_id("first"), {}, "", []))
        raise self.error(404, "Run not found")

    async def _run(self, request: Request, run: Run, path: Sequence[str]) -> Any:
        match request.method, path:
            case "GET", []:
                shown = self.shown_run(run)
                return {**shown, "run_id": str(uuid4())} if self.does("get gives another run") else shown
            case "DELETE", []:
                self.delete_run(run)
                return Answer(204)
            case "GET", ["join"]:
                return await self.joined(run)
            case "GET", ["stream"]:
                return self._joined(request, run)
            case "POST", ["cancel"]:
                return await self._cancelled(request, run)
            case _:
                raise self.error(404, "Not Found")

    async def _cancelled(self, request: Request, run: Run) -> Answer:
        self.refuse_unless("ended runs are cancelled", 404, "No matching runs to cancel.", when=not run.is_active)
        await self.cancelled(request, run)
        if request.query.get("wait") in ("true", "1"):
            return _json({})
        return Answer(200 if self.does("cancels are answered with 200") else 202)

    def _located(self, run: Run, shown: Any, way: str = "") -> Answer:
        return _json(shown, headers=self._locations(run, way), is_text=self.is_text)

    def _locations(self, run: Run, way: str) -> dict[str, str]:
        where = f"/threads/{run.thread.id}/runs/{run.id}"
        found = {} if self.does("nothing says where the run is") and not way else {"content-location": where}
        if way == "join" and self.does("a wait says not where to go on"):
            return found
        if way == "stream" and self.does("a stream says not where to go on"):
            return found
        return {**found, "location": f"{where}/{way}"} if way else found

    def _create(self, request: Request, thread_id: str | None) -> Run:
        return self._made(request, thread_id, self.body(request))

    def _made(self, request: Request, thread_id: str | None, body: Mapping[str, Any]) -> Run:
        agent = self._agent_of(body)
        command: dict[str, Any] = body.get("command") or {}
        if command and thread_id is None and not self.does("answers need no thread"):
            raise self.error(400, "You must provide a thread_id when resuming.")
        config: dict[str, Any] = body.get("config") or {}
        if body.get("context") and config.get("configurable") and not self.does("context is put beside configurable"):
            raise self.error(400, "Cannot specify both configurable and context.")
        self._check_webhook(body.get("webhook"))
        thread = self.thread_of_run(request, thread_id, body)
        given: dict[str, Any] = body.get("input") or {}
        messages = said(given.get("messages") or [])
        run = Run(str(uuid4()), thread, agent, body, " ".join(each["text"] for each in messages), messages)
        if "resume" in command and thread.states:
            run.answers = self._answers(thread.states[-1], command["resume"])
        default = "reject" if self.does("runs are rejected by default") else "enqueue"
        strategy = body.get("multitask_strategy", default)
        if strategy == "reject" and self.does("reject is for every thread") and thread.runs:
            raise self.error(409, "the thread has runs")
        if strategy == "reject" and self.does("reject is enqueue"):
            strategy = "enqueue"
        self.enter(run, strategy)
        return run

    def _agent_of(self, body: Mapping[str, Any]) -> str:
        named = body.get("assistant_id", "")
        found = next((each for each in self.assistants if named in (each["assistant_id"], each["graph_id"])), None)
        if found is not None:
            is_name = named == found["graph_id"] and self.does("runs name their graph")
            return str(uuid4()) if is_name else found["assistant_id"]
        if is_uuid(named):
            if self.does("unknown agents run"):
                return named
            raise self.error(404, "Thread or assistant not found.")
        raise self.error(404 if self.does("unknown graphs are not found") else 422, f"Invalid assistant: {named}")

    def _answers(self, state: State, resume: Any) -> list[str]:
        ids = [str(each["id"]) for each in self.interrupts(state)]
        if self.does("answers are not heard"):
            return ["nobody" for _ in ids]
        if isinstance(resume, str) or self.does("answers have no ids"):
            return [str(resume)]
        named: dict[str, Any] = resume
        if len(ids) > 1 and self.does("one answer is enough"):
            ids = ids[:1]
        return [str(named.get(id)) for id in ids]

    def _check_webhook(self, url: Any) -> None:
        if url is None:
            return
        parts = urlsplit(str(url))
        if parts.scheme not in ("http", "https") and not self.does("webhooks are any text"):
            raise self.error(422, "Webhook must be a URL")
        if (parts.hostname or "").startswith("169.254.") and not self.does("webhooks lead anywhere"):
            raise self.error(422, "Webhook host blocked")

    def base(self, run: Run) -> State | None:
        checkpoint: dict[str, Any] = run.body.get("checkpoint") or {}
        if checkpoint and not self.does("runs begin with the newest state"):
            return self._at(run.thread, checkpoint["checkpoint_id"])
        return super().base(run)

    def _listed(self, request: Request, thread_id: str) -> Any:
        if thread_id not in self.threads and self.does("unknown threads have no runs"):
            return []
        runs = [self.shown_run(each) for each in reversed(self.thread(request, thread_id).runs)]
        if self.does("runs are listed oldest first"):
            runs.reverse()
        status = request.query.get("status")
        runs = [each for each in runs if status in (None, each["status"]) or self.does("states of runs differ not")]
        if self.does("runs have no pages"):
            return runs
        return runs[int(request.query.get("offset", "0")) :][: int(request.query.get("limit", "10"))]

    def _batch(self, request: Request) -> Any:
        bodies: list[Any] = request.json
        is_right = bool(bodies) and all(self._is_mode(each.get("stream_mode", "values")) for each in bodies)
        self.refuse_unless("batches are not checked", 422, "the batch is wrong", when=not is_right)
        runs = [self._made(request, None, each) for each in bodies if self._is_mode(each.get("stream_mode", "values"))]
        return [self.shown_run(each) for each in runs[:1] if self.does("a batch is its first")] or [
            self.shown_run(each) for each in runs
        ]

    def _is_mode(self, mode: Any) -> bool:
        return mode in _MODES or isinstance(mode, list)

    def _cancel_several(self, request: Request) -> Answer:
        body = self.body(request)
        thread = self.thread(request, body["thread_id"])
        runs = [each for each in thread.runs if each.id in body["run_ids"] and each.is_active]
        self.refuse_unless("nothing is cancelled", 404, "No runs found to cancel.", when=not runs)
        for run in runs:
            self.stop(run)
        return Answer(200 if self.does("several cancels are answered with 200") else 204)

    # Streams

    def _stream(self, request: Request, thread_id: str | None) -> Answer:
        self.refuse_if("runs without a thread are not streamed", 404, "Not Found", when=thread_id is None)
        body = self.body(request)
        modes = modes_of(body)
        self.refuse_unless("any text is a stream mode", 422, "stream_mode", when=not set(modes) <= set(_MODES))
        self.refuse_if("answers are not streamed", 422, "command", when=body.get("command"))
        if self.does("only the first mode is streamed"):
            modes = modes[:1]
        run = self._create(request, thread_id)
        if "custom" in modes and self.does("custom is values"):
            modes.append("values")
        shown = [each for each in modes if each != "updates" or not self.does("updates are not streamed")]
        if self.does("streams are text"):
            return Answer(body="".join(f"{event}: {data}" for event, data in run.frames))
        stream = self.own_stream(run, shown, self._sse, self.on_disconnect(body, "continue"))
        return Answer(stream=stream, headers=self._headers(run))

    def _headers(self, run: Run) -> dict[str, str]:
        cache = {} if self.does("streams may be cached") else {"cache-control": "no-store"}
        return {**self._locations(run, "stream"), **cache}

    def _joined(self, request: Request, run: Run) -> Answer:
        after = request.headers.get("last-event-id")
        if run.ended.is_set() and after is None and self.does("streams of ended runs stay open"):
            return Answer(stream=silent())
        if self.does("runs cannot be joined") and not run.ended.is_set():
            raise self.error(404, "Not Found")
        modes = modes_of(run.body)
        seen = len(run.frames) - 1
        start = seen if after is None else int(after)
        if after is None and self.does("ended streams are told again"):
            start = -1
        if after == "-1" and run.is_active and self.does("what was before is not told again"):
            start = seen
        if after == "-1" and self.does("streams are not kept"):
            start = seen
        if after not in (None, "-1") and self.does("streams are told from their beginning"):
            start = -1
        leaves = "cancel" if request.query.get("cancel_on_disconnect") == "true" else "continue"
        if leaves == "cancel" and self.does("listeners never cancel"):
            leaves = "continue"
        if leaves == "continue" and self.does("listeners always cancel"):
            leaves = "cancel"
        return Answer(stream=self._frames(run, modes, self._sse, start, leaves), headers=self._headers(run))

    def _sse(self, number: int, event: str, data: Any) -> bytes:
        if self.does("data is no JSON"):
            return f"event: {event}\ndata: {data}\n\n".encode()
        name = "" if self.does("events have no names") else event
        id = str(number // 2 if self.does("events share their ids") else number)
        return sse(data, event=name, id="" if self.does("events have no ids") else id)

    # Store

    def _store(self, request: Request, path: Sequence[str]) -> Any:
        match request.method, path:
            case "PUT", ["items"]:
                self.put(request)
                return Answer(200 if self.does("items are answered with 200") else 204)
            case "GET", ["items"]:
                return _json(self.got(request, request.query.get("namespace", "").split(".")), is_text=self.is_text)
            case "DELETE", ["items"]:
                self.remove(request)
                return Answer(204)
            case "POST", ["items", "search"]:
                return {"items": self.searched(request)}
            case "POST", ["namespaces"]:
                found = self.namespaces(request)
                return found if self.does("namespaces are a bare array") else {"namespaces": found}
            case _:
                raise self.error(404, "Not Found")


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None, *, is_text: bool = False) -> Answer:
    kind = "text/plain" if is_text else "application/json"
    return Answer(status, json.dumps(value), {"content-type": kind, **(headers or {})})


SERVER: Final = Server(
    set="langgraph-0.16",
    make=Platform,
    violations=VIOLATIONS,
    is_large=True,
    options=options(
        agent="second",
        timeout=4.0,
        plain="Hello",
        stream="stream of words",
        question=Trigger("ask me", answer="Ada", agent="second"),
        questions=Trigger("several things", answer="Ada", agent="second"),
        fail="fail",
        long="long",
    ),
    unbroken={
        "thread.create": "a server that fails it keeps nothing: the dead server shows that",
        "run.create": "a server that fails it keeps nothing of runs: the dead server shows that",
    },
)
