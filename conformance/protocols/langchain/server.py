"""Client for a judged server of the Agent Protocol or LangGraph Platform. A dialect has the names that differ between
both protocols, and a layout the paths of runs."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit
from uuid import uuid4

from babelgate.conformance.probe import Context
from babelgate.conformance.trigger import Trigger
from babelgate.conformance.verdict import NO_TRIGGER, NotApplicable, NotObserved, check
from babelgate.conformance.wire.exchange import Exchange, SseFrame, as_list, as_object, dig
from babelgate.conformance.wire.http import Receives, StreamExchange, Wire


@dataclass(frozen=True, slots=True)
class Layout:
    """URL paths of runs in one layout of the protocol, and the names of the schemas that requests and responses on
    these paths must match."""

    name: str
    is_below: bool
    """True if the paths of runs are below their thread (`/threads/{thread_id}/runs/{run_id}`), False if they are not
    (`/runs/{run_id}`)."""
    run: str = "Run"
    waited: str = "RunWaitResponse"
    wait: str = "wait"
    """Last segment of the path that waits for the end of a run: `wait` or `join`."""
    tuples: str = "messages"
    """Name of the stream mode that sends messages in pieces, token by token."""

    def runs(self, thread_id: str | None, *way: str) -> str:
        """Return the path that creates or lists the runs of a thread. If `thread_id` is None, it is the path for runs
        without a thread. `way` are further segments, such as `wait` or `stream`."""
        below = ("threads", thread_id) if self.is_below and thread_id else ()
        return _path(*below, "runs", *way)

    def one(self, thread_id: str, run_id: str, *way: str) -> str:
        return _path(*(("threads", thread_id) if self.is_below else ()), "runs", run_id, *way)


@dataclass(frozen=True, slots=True)
class LangChainDialect:
    agent: str
    """Member of a run that names its agent: `agent_id` or `assistant_id`."""
    speaker: tuple[str, str]
    """Member of a message that names its author, and the value of this member for the agent: `("type", "ai")`, for
    example."""
    has_input: bool
    """True if messages are a member of a run's `input` and of a thread's `values`; False if they are a member of the
    run and of the thread itself."""
    cancelled: int
    """HTTP status of the response to a cancel."""
    waits_cancelled: int
    """HTTP status of the response to a cancel with `wait=true`."""
    missing_item: int
    """HTTP status of the response for a store item that does not exist. If it is 200, the body is null."""
    has_bare_namespaces: bool
    """True if the response with a list of store namespaces is an array; False if it is an object that contains the
    array."""
    events: str
    """Path of a thread's event stream, relative to the thread."""
    is_camel: bool
    """True if the members of commands and events are spelled in camelCase; False for snake_case."""


_MAX_SCHEMAS: Final = 20
"""Maximum number of agents whose schemas are read to find one that accepts messages. Chosen."""

AGENT_PROTOCOL: Final = LangChainDialect("agent_id", ("role", "assistant"), False, 204, 204, 404, True, "stream", True)
PLATFORM: Final = LangChainDialect("assistant_id", ("type", "ai"), True, 202, 200, 200, False, "stream/events", False)


class LangChainTarget:
    def __init__(
        self,
        wire: Wire,
        base: str,
        dialect: LangChainDialect,
        layouts: Sequence[Layout],
        agents: Mapping[str, str],
        agent: str,
    ) -> None:
        self.wire = wire
        self.base = base
        self.dialect = dialect
        self.layouts = layouts
        self.agents = agents
        """Ids of the server's agents, by name."""
        self.agent = agent
        """Id of the agent that is judged if a trigger names no other. Empty means the server's default agent."""
        self.takes_messages = True
        """False if the agent's input schema has no `messages`. Then the user must give its input as `data` in a file of
        triggers."""
        # The README layout has errors as plain text, the newer layout as objects.
        has_texts = dialect is AGENT_PROTOCOL and all(layout.is_below for layout in layouts)
        error = "ErrorText" if has_texts else "Error"
        self.errors: Final[Mapping[int, str]] = dict.fromkeys((400, 404, 409, 422), error)

    def url(self, path: str, query: Any = None) -> str:
        return f"{self.base}{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        sends: str | None = None,
        receives: str | None = None,
        query: Any = None,
        **options: Any,
    ) -> Exchange:
        """Send a request and return the exchange. `body` is sent as JSON; None sends no body. `sends` names the schema
        of the request, and `receives` that of responses with status 200; None validates nothing."""
        return await self.wire.request(
            method,
            self.url(path, query),
            sends=sends,
            receives=self._receives(receives),
            body=body,
            **options,
        )

    def listen(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        sends: str | None = None,
        events: str = "StreamData",
        query: Any = None,
        **options: Any,
    ) -> AbstractAsyncContextManager[StreamExchange]:
        return self.wire.stream(
            method,
            self.url(path, query),
            sends=sends,
            receives=self._receives(None),
            events=events,
            body=body,
            **options,
        )

    def _receives(self, schema: str | None) -> Receives:
        return dict(self.errors) if schema is None else {200: schema, **self.errors}

    # Threads

    async def new_thread(self, **fields: Any) -> str:
        """Create a thread and return its id. Raises Failed if the server does not create it."""
        exchange = await self.ask("POST", "/threads", fields, sends="ThreadCreate.request", receives="Thread")
        thread_id = dig(exchange.json, "thread_id")
        check(exchange.status == 200 and isinstance(thread_id, str), "a thread is created", exchange.status, exchange)
        return thread_id

    async def thread(self, thread_id: str, **options: Any) -> Exchange:
        return await self.ask("GET", _path("threads", thread_id), receives="Thread", **options)

    async def patch(self, thread_id: str, body: Any, **options: Any) -> Exchange:
        return await self.ask(
            "PATCH", _path("threads", thread_id), body, sends="ThreadPatch.request", receives="Thread", **options
        )

    async def history(self, thread_id: str, **query: Any) -> list[Any]:
        """Return the states of a thread in the order of the server's response, at most 100 by default. Raises Failed if
        the response is no list of states."""
        path = _path("threads", thread_id, "history")
        exchange = await self.ask("GET", path, receives="ThreadStates", query={"limit": 100, **query})
        states = exchange.json
        check(exchange.status == 200 and isinstance(states, list), "an array of states", states, exchange)
        return as_list(states)

    async def search_threads(self, **fields: Any) -> Exchange:
        return await self.ask("POST", "/threads/search", fields, sends="ThreadSearch.request", receives="Threads")

    # Runs

    def body(self, trigger: Trigger, **fields: Any) -> dict[str, Any]:
        """Return the body of a request that creates a run with the text or the data of a trigger. `fields` are further
        members."""
        message = {"role": "user", "content": trigger.text}
        run_input: dict[str, Any] = (
            {"input": {"messages": [message]}} if self.dialect.has_input else {"messages": [message]}
        )
        if trigger.data is not None:
            run_input = {"input": trigger.data}
        agent = self.agents.get(trigger.agent, trigger.agent) or self.agent
        named = {self.dialect.agent: agent} if agent else {}
        return {**named, **run_input, **fields}

    def at(self, layout: Layout, thread_id: str | None, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the body of a run with the thread's id, or unchanged if the path has the id or if `thread_id` is
        None."""
        return body if layout.is_below or thread_id is None else {**body, "thread_id": thread_id}

    async def create(
        self, layout: Layout, thread_id: str | None, body: Mapping[str, Any], way: str = "", **options: Any
    ) -> Exchange:
        """Create a run and return the exchange. If `thread_id` is None, the run has no thread. `way` is `wait` to wait
        for its end, and empty for a run in the background."""
        request_options = {
            "sends": "RunCreate.request" if options.pop("is_valid", True) else None,
            "receives": layout.waited if way else layout.run,
            **options,
        }
        path = layout.runs(thread_id, *([way] if way else []))
        return await self.ask("POST", path, self.at(layout, thread_id, body), **request_options)

    def stream(
        self, layout: Layout, thread_id: str | None, body: Mapping[str, Any], **options: Any
    ) -> AbstractAsyncContextManager[StreamExchange]:
        path = layout.runs(thread_id, "stream")
        return self.listen("POST", path, self.at(layout, thread_id, body), sends="RunCreate.request", **options)

    async def run(self, layout: Layout, thread_id: str, run_id: str, **options: Any) -> Exchange:
        return await self.ask("GET", layout.one(thread_id, run_id), receives=layout.run, **options)

    async def wait(self, layout: Layout, thread_id: str, run_id: str, **options: Any) -> Exchange:
        """Wait until a run has ended, and return the exchange of this request."""
        return await self.ask("GET", layout.one(thread_id, run_id, layout.wait), receives=layout.waited, **options)

    async def cancel(
        self, layout: Layout, thread_id: str, run_id: str, options: Mapping[str, Any] | None = None, **query: Any
    ) -> Exchange:
        return await self.ask("POST", layout.one(thread_id, run_id, "cancel"), query=query, **(options or {}))

    async def run_to_end(self, layout: Layout, thread_id: str, run_id: str) -> Exchange:
        """Wait until a run has ended, and return the exchange that then reads it."""
        await self.wait(layout, thread_id, run_id)
        return await self.run(layout, thread_id, run_id)

    # Names of members, and texts of messages

    def spell(self, name: str) -> str:
        """Return the name of a member of commands or events in the spelling of the dialect: `run_id` or `runId`."""
        first, *rest = name.split("_")
        return first + "".join(each.capitalize() for each in rest) if self.dialect.is_camel else name

    def messages(self, holder: Any) -> list[Any]:
        """Return the messages in a thread or in a state, from the member where the dialect has them."""
        return as_list(dig(holder, *(("values", "messages") if self.dialect.has_input else ("messages",))))

    def answers(self, messages: Sequence[Any]) -> list[str]:
        """Return the texts of those messages whose author is the agent."""
        member, value = self.dialect.speaker
        return [text_of(each) for each in messages if dig(each, member) == value]


Ctx = Context[LangChainTarget]


def trigger_for(ctx: Ctx, behaviour: str) -> Trigger:
    """Return the trigger for a behaviour.

    Raises NotObserved if the user gave no trigger for the behaviour, and NotApplicable if the user states that the
    agent never shows it.
    """
    trigger = ctx.triggers[behaviour]
    if trigger.is_never:
        raise NotApplicable("the owner declares that the agent never does it")
    if not trigger.is_from_user and behaviour != "plain":
        raise NotObserved(NO_TRIGGER, behaviour)
    if not trigger.is_from_user and not ctx.target.takes_messages:
        raise NotObserved("the agent accepts no messages; give its input as `data` in a file of triggers", behaviour)
    return trigger


def speaking_trigger(ctx: Ctx) -> Trigger:
    """Return the trigger for the behaviour `stream`, or that for `plain` if the user gave none."""
    trigger = ctx.triggers["stream"]
    return trigger if trigger.is_from_user and not trigger.is_never else trigger_for(ctx, "plain")


def text_of(message: Any) -> str:
    content = dig(message, "content")
    if isinstance(content, str):
        return content
    return "".join(str(dig(block, "text") or "") for block in as_list(content))


def json_of(frame: SseFrame | None) -> Any:
    """Return the data of an SSE frame as JSON. Return None if there is no frame, or if the data is not JSON, which
    another requirement tests."""
    return frame.json_or_none if frame is not None else None


def ids_of(exchange: Exchange, name: str) -> list[Any]:
    """Return the member `name` of each item in a response that is a bare array."""
    return [dig(each, name) for each in as_list(exchange.json)]


def is_refused(exchange: Exchange) -> bool:
    return 400 <= (exchange.status or 0) < 500


def unknown_id() -> str:
    return str(uuid4())


async def choose_agent(server: LangChainTarget, named: str, ids: Sequence[str], path: str) -> None:
    """Choose the agent that is judged: the one that the URL names, or else the first of `ids` whose schema accepts
    messages.

    `path` is the path of the server's agents, `agents` or `assistants`.
    """
    server.agent = named or (ids[0] if ids else "")
    for id in [named] if named else ids[:_MAX_SCHEMAS]:
        exchange = await server.wire.request("GET", server.url(f"{_path(path, id)}/schemas"), sends=None, receives=None)
        members = as_object(dig(exchange.json, "input_schema", "properties"))
        if members is None or "messages" in members:
            # An agent without a schema is assumed to accept what the protocol defines.
            server.agent, server.takes_messages = id, True
            return
        server.takes_messages = False


def base_of(url: str, *ends: str) -> tuple[str, str]:
    """Split a URL into the server's base URL and the id of an agent. `ends` are the path segments before the id, such
    as `agents`. The id is empty if the URL has none."""
    parts = urlsplit(url)
    path, agent = parts.path.rstrip("/"), ""
    for end in ends:
        head, found, tail = path.partition(f"/{end}")
        if found:
            path, agent = head, tail.strip("/").split("/")[0]
    return urlunsplit((parts.scheme, parts.netloc, path, "", "")), agent


def _path(*steps: str) -> str:
    return "".join(f"/{quote(step, safe='')}" for step in steps)
