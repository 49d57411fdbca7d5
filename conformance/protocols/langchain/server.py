"""Server of threads and runs, and the names in its dialect."""

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
    """URL paths of runs in one version of the protocol, and the names of the schemas that requests and responses on
    these paths must match."""

    name: str
    is_below: bool
    """True for `/threads/{thread_id}/runs/{run_id}`, False for `/runs/{run_id}`."""
    run: str = "Run"
    waited: str = "RunWaitResponse"
    wait: str = "wait"
    """Last segment of the path at which a run is awaited."""
    tuples: str = "messages"
    """Stream mode that sends messages in pieces."""

    def runs(self, thread_id: str | None, *way: str) -> str:
        """Return the path for creating or listing the runs of a thread. None means runs without a thread. `way` are the
        segments after it: `wait` or `stream`, or none."""
        below = ("threads", thread_id) if self.is_below and thread_id else ()
        return _path(*below, "runs", *way)

    def one(self, thread_id: str, run_id: str, *way: str) -> str:
        return _path(*(("threads", thread_id) if self.is_below else ()), "runs", run_id, *way)


@dataclass(frozen=True, slots=True)
class LangChainDialect:
    agent: str
    """Member that names the agent of a run."""
    speaker: tuple[str, str]
    """Member of a message that names its author, and its value for the agent."""
    has_input: bool
    """True if messages are a member of the input and the values, False if they are a member of the run and the
    thread."""
    cancelled: int
    """Status of the response to a cancel."""
    waits_cancelled: int
    """Status of the response to a cancel with wait=true."""
    missing_item: int
    """Status of the response for a missing item. With 200 the body is null."""
    has_bare_namespaces: bool
    """True if a list of namespaces is an array, False if it is an object that contains the array."""
    events: str
    """Path of a thread's events, below the thread."""
    is_camel: bool
    """True if members of commands and events are spelled in camelCase."""


_MAX_SCHEMAS: Final = 20
"""Maximum number of agents whose schemas are read. Chosen."""

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
        """Agent ids, by name."""
        self.agent = agent
        """Id of the agent that is judged if a trigger names none. Empty means the server's default."""
        self.takes_messages = True
        """False if the agent's schema has no messages. Then only the agent's owner knows a valid input."""
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
        """Send a request with the JSON `body` (None: without a body) and the query parameters. `sends` names the schema
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
        """Create a thread and return its id. Raises Failed."""
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
        """Return the states of a thread. Raises Failed."""
        path = _path("threads", thread_id, "history")
        exchange = await self.ask("GET", path, receives="ThreadStates", query={"limit": 100, **query})
        states = exchange.json
        check(exchange.status == 200 and isinstance(states, list), "an array of states", states, exchange)
        return as_list(states)

    async def search_threads(self, **fields: Any) -> Exchange:
        return await self.ask("POST", "/threads/search", fields, sends="ThreadSearch.request", receives="Threads")

    # Runs

    def body(self, trigger: Trigger, **fields: Any) -> dict[str, Any]:
        """Return the body of a run with the text of the trigger."""
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
        """Return the body of a run on a thread. It names the thread, unless the path does or there is no thread
        (None)."""
        return body if layout.is_below or thread_id is None else {**body, "thread_id": thread_id}

    async def create(
        self, layout: Layout, thread_id: str | None, body: Mapping[str, Any], way: str = "", **options: Any
    ) -> Exchange:
        """Create a run, on a thread or without one (None). `way`: `wait`, or nothing for a run in the background."""
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
        """Wait until the run has ended."""
        return await self.ask("GET", layout.one(thread_id, run_id, layout.wait), receives=layout.waited, **options)

    async def cancel(
        self, layout: Layout, thread_id: str, run_id: str, options: Mapping[str, Any] | None = None, **query: Any
    ) -> Exchange:
        return await self.ask("POST", layout.one(thread_id, run_id, "cancel"), query=query, **(options or {}))

    async def run_to_end(self, layout: Layout, thread_id: str, run_id: str) -> Exchange:
        """Wait for the end of a run, and return it."""
        await self.wait(layout, thread_id, run_id)
        return await self.run(layout, thread_id, run_id)

    # Names of members, and texts of messages

    def spell(self, name: str) -> str:
        """Return a member's name in commands and events, spelled as in this dialect."""
        first, *rest = name.split("_")
        return first + "".join(each.capitalize() for each in rest) if self.dialect.is_camel else name

    def messages(self, holder: Any) -> list[Any]:
        """Return the messages of a thread or a state."""
        return as_list(dig(holder, *(("values", "messages") if self.dialect.has_input else ("messages",))))

    def answers(self, messages: Sequence[Any]) -> list[str]:
        """Return the texts of the agent's messages."""
        member, value = self.dialect.speaker
        return [text_of(each) for each in messages if dig(each, member) == value]


Ctx = Context[LangChainTarget]


def trigger_for(ctx: Ctx, behaviour: str) -> Trigger:
    """Return the trigger for a behaviour.

    Raises NotObserved if the user gave no trigger for it, and NotApplicable if the user states that the agent never
    shows it.
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
    """Return the trigger for an answer in several pieces, or else for a plain answer."""
    trigger = ctx.triggers["stream"]
    return trigger if trigger.is_from_user and not trigger.is_never else trigger_for(ctx, "plain")


def text_of(message: Any) -> str:
    content = dig(message, "content")
    if isinstance(content, str):
        return content
    return "".join(str(dig(block, "text") or "") for block in as_list(content))


def json_of(frame: SseFrame | None) -> Any:
    """Return the data of an event. Return None at the end of the stream (there is no event), or if the data is not
    JSON, which another requirement tests."""
    return frame.json_or_none if frame is not None else None


def ids_of(exchange: Exchange, name: str) -> list[Any]:
    """Return one member of each item in a list that is a bare array."""
    return [dig(each, name) for each in as_list(exchange.json)]


def is_refused(exchange: Exchange) -> bool:
    return 400 <= (exchange.status or 0) < 500


def unknown_id() -> str:
    return str(uuid4())


async def choose_agent(server: LangChainTarget, named: str, ids: Sequence[str], path: str) -> None:
    """Choose the agent that is judged: the one that the URL names, or the first that accepts messages by its schema.

    `path`: the path of agents.
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
    """Return the URL without the part that the protocol adds, and the id of the agent after one of `ends`, if any."""
    parts = urlsplit(url)
    path, agent = parts.path.rstrip("/"), ""
    for end in ends:
        head, found, tail = path.partition(f"/{end}")
        if found:
            path, agent = head, tail.strip("/").split("/")[0]
    return urlunsplit((parts.scheme, parts.netloc, path, "", "")), agent


def _path(*steps: str) -> str:
    return "".join(f"/{quote(step, safe='')}" for step in steps)
