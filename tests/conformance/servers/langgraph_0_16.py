"""Scripted LangGraph Platform server, modeled on langgraph-api 0.16."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

from babelgate.conformance.trigger import Trigger
from tests.conformance.servers.kit import Answer, Request, Server, is_uuid, options, sse
from tests.conformance.servers.langchain_commands import endless, messages_of
from tests.conformance.servers.langchain_work import Run, State, Thread, json_answer, modes_of, now
from tests.conformance.servers.langgraph_views import GRAPHS, Views, assistant_id
from tests.conformance.servers.langgraph_violations import VIOLATIONS

_MODES: Final = (
    *("values", "messages", "messages-tuple", "updates", "events"),
    *("tasks", "checkpoints", "debug", "custom"),
)


class Platform(Views):
    """Server with two agents. The text of a message selects what an agent does."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.assistants = [self._assistant(graph) for graph in GRAPHS]

    def _assistant(self, graph: str) -> dict[str, Any]:
        id = str(uuid4()) if self.does("assistants have random ids") else assistant_id(graph)
        created = now()
        return {
            **{"assistant_id": id, "graph_id": graph, "config": {}, "metadata": {"created_by": "system"}},
            **{
                "created_at": created,
                "updated_at": created,
                "version": "1" if self.does("versions are texts") else 1,
            },
        }

    # Routes

    async def route(self, request: Request, path: Sequence[str]) -> Any:
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
                await self.pause_in_race(request, None)
                return self.thread_view(self.create_thread(request))
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
        info: dict[str, Any] = {"version": "0.16.7", "flags": {"assistants": True}}
        self.drop_if("there is no version", info, "version")
        self.drop_if("there are no flags", info, "flags")
        return info

    # Assistants

    def _assistants(self, request: Request, path: Sequence[str]) -> Any:
        match path:
            case ["search"]:
                return self._search_assistants(request)
            case ["count"]:
                number = len(self.assistants) + self.does("counts are wrong")
                return {"count": number} if self.does("counts are objects") else number
            case [id, *rest]:
                return self._describe(id, rest)
            case _:
                raise self.error(404, "Not Found")

    def _search_assistants(self, request: Request) -> Any:
        body = self.body(request)
        graph = body.get("graph_id")
        found = [
            each
            for each in self.assistants
            if graph in (None, each["graph_id"]) or self.does("graphs are not filtered")
        ]
        if self.does("assistants are in an object"):
            return {"assistants": found}
        start = 0 if self.does("assistants have no pages") else body.get("offset", 0)
        return found[start:][: body.get("limit", 10)]

    def _describe(self, id: str, path: Sequence[str]) -> Any:
        found = next((each for each in self.assistants if each["assistant_id"] == id), None)
        if found is None and self.does("unknown assistants are the first"):
            found = self.assistants[0]
        if found is None:
            raise self.error(404 if is_uuid(id) else 422, "Not Found")
        match path:
            case []:
                return {**found, "graph_id": "a graph"} if self.does("assistants differ from the list") else found
            case ["schemas"]:
                graph = None if self.does("schemas name no graph") else found["graph_id"]
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
        if self.does("edges lead to missing nodes"):
            nodes = nodes[:-1]
        edges = [{"source": "__start__", "target": "agent"}, {"source": "agent", "target": "__end__"}]
        return {"nodes": nodes, "edges": edges}

    # Threads

    def _threads(self, request: Request, path: Sequence[str]) -> Any:
        match request.method, path:
            case "POST", ["search"]:
                return self._search_threads(request)
            case "POST", ["count"]:
                number = len(self.matching(request, self.body(request)))
                return 7 if self.does("threads are not counted") else number
            case "POST", [id, "copy"]:
                return self.thread_view(self.copy_thread(request, id))
            case "POST", [id, "commands"]:
                return self.command(request, id)
            case "POST", [id, "stream", "events"]:
                return self.event_stream(request, id)
            case _, [id, "history"]:
                return self._history(request, id)
            case _, [id, "state", *rest]:
                return self._state(request, id, rest)
            case _, [id]:
                return self.answer_thread(request, id)
            case _:
                raise self.error(404, "Not Found")

    def _search_threads(self, request: Request) -> Answer:
        body = self.body(request)
        limit, offset = self.page_bounds(body, 10)
        found = self.matching(request, body)
        ids = body.get("ids")
        if ids is not None and not self.does("ids are not searched"):
            found = [each for each in found if each.id in ids]
        if body.get("sort_order", "desc") == "desc" or self.does("threads are never sorted"):
            found.reverse()
        views = [self.thread_view(each) for each in self.slice_page(found, limit, offset)]
        wanted = body.get("select")
        if wanted is not None and not self.does("select is ignored"):
            views = [{name: each[name] for name in wanted} for each in views]
        has_more = offset + limit < len(found)
        headers = {"x-pagination-total": str(offset + limit + 1 if has_more else len(found))}
        if has_more:
            headers["x-pagination-next"] = str(offset + limit)
        return json_answer(views, headers={} if self.does("pages have no headers") else headers, is_text=self.is_text)

    def patch(self, request: Request, thread: Thread) -> Answer | None:
        self.patch_metadata(thread, self.body(request).get("metadata") or {})
        is_minimal = request.headers.get("prefer") == "return=minimal" and not self.does("Prefer is ignored")
        return Answer(204) if is_minimal else None

    def _history(self, request: Request, id: str) -> Any:
        if id not in self.threads and self.does("unknown threads have an empty history"):
            return []
        thread = self.thread(request, id)
        if request.method == "POST":
            body = self.body(request)
            before: dict[str, Any] = body.get("before") or {"configurable": {}}
            wanted: str | None = before["configurable"].get("checkpoint_id")
            if self.does("before in a body is ignored"):
                wanted = None
            states = self.history(thread, body.get("limit", 1), wanted)
        else:
            states = self.history(thread, int(request.query.get("limit", "10")), request.query.get("before"))
        return [self.state_view(thread, each) for each in states]

    # State

    def _state(self, request: Request, id: str, path: Sequence[str]) -> Any:
        if id not in self.threads and self.does("unknown threads have an empty state"):
            return self.state_view(Thread(id, "", {}), None)
        thread = self.thread(request, id)
        match request.method, path:
            case "GET", []:
                return self._newest(thread)
            case "GET", [checkpoint]:
                last = thread.states[-1] if thread.states else None
                newest = self.does("older states are the newest")
                return self.state_view(thread, last if newest else self._at(thread, checkpoint))
            case "POST", ["checkpoint"]:
                wanted: dict[str, Any] = self.body(request).get("checkpoint") or {}
                last = thread.states[-1] if thread.states else None
                newest = self.does("checkpoints are the newest")
                return self.state_view(thread, last if newest else self._at(thread, wanted.get("checkpoint_id")))
            case "POST", []:
                return self._update(request, thread)
            case _:
                raise self.error(404, "Not Found")

    def _newest(self, thread: Thread) -> Any:
        view = self.state_view(thread, thread.states[-1] if thread.states else None)
        if thread.states and self.does("the state has another checkpoint"):
            view["checkpoint"] = self.checkpoint(thread, str(uuid4()))
        self.set_if("the state has no messages", view, values={}, when=thread.states)
        return view

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
        before = [] if self.does("updates replace the messages") else base.messages
        messages = [*before, *messages_of(values.get("messages") or [])]
        if self.does("updates replace the state"):
            thread.states.pop()
        state = self.add_state(thread, "update", base=base, messages=messages)
        id = str(uuid4()) if self.does("updates are answered with another checkpoint") else state.id
        checkpoint_view = self.checkpoint(thread, id)
        return (
            checkpoint_view
            if self.does("updates are answered with the bare checkpoint")
            else {"checkpoint": checkpoint_view}
        )

    # Runs

    async def _runs(self, request: Request, thread_id: str | None, path: Sequence[str]) -> Any:
        match request.method, path:
            case "POST", []:
                await self.pause_in_race(request, thread_id)
                run = self._create(request, thread_id)
                if self.does("runs in the background are waited for"):
                    await run.ended.wait()
                return self._with_location(run, self.run_view(run))
            case "POST", ["wait"]:
                run = self._create(request, thread_id)
                await run.ended.wait()
                view = self.wait_view(run)
                self.set_if("a run with a wait has no messages", view, messages=[])
                return self._with_location(run, view, "join")
            case "POST", ["stream"]:
                return self._stream(request, thread_id)
            case "GET", [] if thread_id is not None:
                return self._list_runs(request, thread_id)
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
        if path == ["join"] and self.does("unknown runs have an empty result"):
            return {}
        if request.method == "GET" and not path and self.does("unknown runs are empty"):
            return self.run_view(Run(id, Thread(str(uuid4()), "", {}), assistant_id("first"), {}, "", []))
        raise self.error(404, "Run not found")

    async def _run(self, request: Request, run: Run, path: Sequence[str]) -> Any:
        match request.method, path:
            case "GET", []:
                view = self.run_view(run)
                return {**view, "run_id": str(uuid4())} if self.does("get returns another run") else view
            case "DELETE", []:
                self.delete_run(run)
                return Answer(204)
            case "GET", ["join"]:
                return await self.join(run)
            case "GET", ["stream"]:
                return self._join_stream(request, run)
            case "POST", ["cancel"]:
                return await self._cancel(request, run)
            case _:
                raise self.error(404, "Not Found")

    async def _cancel(self, request: Request, run: Run) -> Answer:
        self.refuse_unless("ended runs are cancelled", 404, "No matching runs to cancel.", when=not run.is_active)
        await self.cancel_run(request, run)
        if request.query.get("wait") in ("true", "1"):
            return json_answer({})
        return Answer(200 if self.does("cancels are answered with 200") else 202)

    def _with_location(self, run: Run, view: Any, way: str = "") -> Answer:
        return json_answer(view, headers=self._location_headers(run, way), is_text=self.is_text)

    def _location_headers(self, run: Run, way: str) -> dict[str, str]:
        where = f"/threads/{run.thread.id}/runs/{run.id}"
        found = {} if self.does("runs have no content-location") and not way else {"content-location": where}
        if way == "join" and self.does("a wait has no location"):
            return found
        if way == "stream" and self.does("a stream has no location"):
            return found
        return {**found, "location": f"{where}/{way}"} if way else found

    def _create(self, request: Request, thread_id: str | None) -> Run:
        return self._create_from(request, thread_id, self.body(request))

    def _create_from(self, request: Request, thread_id: str | None, body: Mapping[str, Any]) -> Run:
        agent = self._agent_of(body)
        command: dict[str, Any] = body.get("command") or {}
        if command and thread_id is None and not self.does("answers need no thread"):
            raise self.error(400, "You must provide a thread_id when resuming.")
        config: dict[str, Any] = body.get("config") or {}
        if (
            body.get("context")
            and config.get("configurable")
            and not self.does("context and configurable are accepted together")
        ):
            raise self.error(400, "Cannot specify both configurable and context.")
        self._check_webhook(body.get("webhook"))
        thread = self.thread_of_run(request, thread_id, body)
        input: dict[str, Any] = body.get("input") or {}
        messages = messages_of(input.get("messages") or [])
        run = Run(str(uuid4()), thread, agent, body, " ".join(each["text"] for each in messages), messages)
        if "resume" in command and thread.states:
            run.answers = self._answers(thread.states[-1], command["resume"])
        default = "reject" if self.does("runs are rejected by default") else "enqueue"
        strategy = body.get("multitask_strategy", default)
        if strategy == "reject" and self.does("reject is for every thread") and thread.runs:
            raise self.error(409, "the thread has runs")
        if strategy == "reject" and self.does("reject is enqueue"):
            strategy = "enqueue"
        self.add_run(run, strategy)
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
        if self.does("answers are ignored"):
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
        if parts.scheme not in ("http", "https") and not self.does("webhooks can be any text"):
            raise self.error(422, "Webhook must be a URL")
        if (parts.hostname or "").startswith("169.254.") and not self.does("webhooks can have any host"):
            raise self.error(422, "Webhook host blocked")

    def base(self, run: Run) -> State | None:
        checkpoint: dict[str, Any] = run.body.get("checkpoint") or {}
        if checkpoint and not self.does("runs begin with the newest state"):
            return self._at(run.thread, checkpoint["checkpoint_id"])
        return super().base(run)

    def _list_runs(self, request: Request, thread_id: str) -> Any:
        if thread_id not in self.threads and self.does("unknown threads have no runs"):
            return []
        runs = [self.run_view(each) for each in reversed(self.thread(request, thread_id).runs)]
        if self.does("runs are listed oldest first"):
            runs.reverse()
        status = request.query.get("status")
        runs = [
            each for each in runs if status in (None, each["status"]) or self.does("states of runs are not filtered")
        ]
        if self.does("runs have no pages"):
            return runs
        return runs[int(request.query.get("offset", "0")) :][: int(request.query.get("limit", "10"))]

    def _batch(self, request: Request) -> Any:
        bodies: list[Any] = request.json
        is_right = bool(bodies) and all(self._is_mode(each.get("stream_mode", "values")) for each in bodies)
        self.refuse_unless("batches are not checked", 422, "the batch is wrong", when=not is_right)
        runs = [
            self._create_from(request, None, each)
            for each in bodies
            if self._is_mode(each.get("stream_mode", "values"))
        ]
        return [self.run_view(each) for each in runs[:1] if self.does("a batch is its first")] or [
            self.run_view(each) for each in runs
        ]

    def _is_mode(self, mode: Any) -> bool:
        return mode in _MODES or isinstance(mode, list)

    def _cancel_several(self, request: Request) -> Answer:
        body = self.body(request)
        thread = self.thread(request, body["thread_id"])
        runs = [each for each in thread.runs if each.id in body["run_ids"] and each.is_active]
        self.refuse_unless("cancels of ended runs succeed", 404, "No runs found to cancel.", when=not runs)
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
        streamed = [each for each in modes if each != "updates" or not self.does("updates are not streamed")]
        if self.does("streams are text"):
            return Answer(body="".join(f"{event}: {data}" for event, data in run.frames))
        stream = self.creator_stream(run, streamed, self._sse, self.on_disconnect(body, "continue"))
        return Answer(stream=stream, headers=self._headers(run))

    def _headers(self, run: Run) -> dict[str, str]:
        cache = {} if self.does("streams may be cached") else {"cache-control": "no-store"}
        return {**self._location_headers(run, "stream"), **cache}

    def _join_stream(self, request: Request, run: Run) -> Answer:
        after = request.headers.get("last-event-id")
        if run.ended.is_set() and after is None and self.does("streams of ended runs stay open"):
            return Answer(stream=endless())
        if self.does("runs cannot be joined") and not run.ended.is_set():
            raise self.error(404, "Not Found")
        modes = modes_of(run.body)
        newest = len(run.frames) - 1
        start = newest if after is None else int(after)
        if after is None and self.does("ended streams are replayed"):
            start = -1
        if after == "-1" and run.is_active and self.does("a stream from -1 is not replayed"):
            start = newest
        if after == "-1" and self.does("streams are not stored"):
            start = newest
        if after not in (None, "-1") and self.does("streams are replayed from the start"):
            start = -1
        on_disconnect = "cancel" if request.query.get("cancel_on_disconnect") == "true" else "continue"
        if on_disconnect == "cancel" and self.does("a disconnected listener never cancels"):
            on_disconnect = "continue"
        if on_disconnect == "continue" and self.does("a disconnected listener always cancels"):
            on_disconnect = "cancel"
        return Answer(stream=self._frames(run, modes, self._sse, start, on_disconnect), headers=self._headers(run))

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
                self.put_item(request)
                return Answer(200 if self.does("items are answered with 200") else 204)
            case "GET", ["items"]:
                return json_answer(
                    self.get_item(request, request.query.get("namespace", "").split(".")), is_text=self.is_text
                )
            case "DELETE", ["items"]:
                self.delete_item(request)
                return Answer(204)
            case "POST", ["items", "search"]:
                return {"items": self.search_items(request)}
            case "POST", ["namespaces"]:
                found = self.namespaces(request)
                return found if self.does("namespaces are a bare array") else {"namespaces": found}
            case _:
                raise self.error(404, "Not Found")


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
        "thread.create": "no other requirement can pass without it; the dead server covers it",
        "run.create": "no other requirement on runs can pass without it; the dead server covers it",
    },
)
