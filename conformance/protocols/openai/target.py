"""Client for a judged server of OpenAI's APIs. It serves several models at one base URL, and requests name the model in
the body."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

from babelgate.conformance.probe import Context, NotSpoken, Opened, ProbeOptions
from babelgate.conformance.verdict import NO_TRIGGER, NotApplicable, NotObserved, check, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, dig
from babelgate.conformance.wire.http import StreamExchange, Wire

DONE: Final = "[DONE]"
TOOL_NAME: Final = "get_weather"
PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
"""JSON Schema of the parameters of the tool that requests offer to the model."""
_ERRORS: Final[Mapping[int, str]] = {4: "ErrorResponse", 5: "ErrorResponse"}
_PATHS: Final = ("chat", "responses", "models", "completions")
"""First path segments below a server's base URL, by which the base is found in any URL of the server."""


_ANSWERS: Final = ("chat.completion", "response")
"""Values of the member `object` in a successful answer of either API."""


class OpenAiTarget:
    """Client for one of the two APIs on a server: chat completions or responses, by its path."""

    def __init__(
        self, wire: Wire, base: str, path: str, names: tuple[str, str, str], ask: Callable[[str], Mapping[str, Any]]
    ) -> None:
        """Create a client.

        `names` are the schema definitions of a request, a response and an event. `ask` returns the members of a request
        with a user's text, except `model`.
        """
        self.wire = wire
        self.base = base
        """Base URL of the server, to which `/models` is added."""
        self.path = path
        self.model = "gpt-4o"
        """Name of the model that is judged if a trigger names no other."""
        self.ask = ask
        self._request, self._answer, self._event = names

    @property
    def url(self) -> str:
        return f"{self.base}/{self.path}"

    def below(self, *path: str) -> str:
        return "/".join((self.base, *(quote(each, safe="") for each in path)))

    async def post(self, body: Any, *, is_valid: bool = True, **options: Any) -> Exchange:
        return await self.wire.request(
            "POST",
            self.url,
            sends=self._request if is_valid else None,
            receives={200: self._answer, **_ERRORS},
            body=body,
            **options,
        )

    async def get(self, url: str, receives: str | None, **options: Any) -> Exchange:
        answers = dict(_ERRORS) if receives is None else {200: receives, **_ERRORS}
        return await self.wire.request("GET", url, sends=None, receives=answers, **options)

    @asynccontextmanager
    async def stream(self, body: Any, **options: Any) -> AsyncGenerator[StreamExchange]:
        async with self.wire.stream(
            "POST",
            self.url,
            sends=self._request,
            receives={200: self._answer, **_ERRORS},
            events=self._event,
            body={**body, "stream": True},
            # The official clients send this header even for a stream.
            headers={"Accept": "application/json"},
            mark=DONE,
            **options,
        ) as stream:
            yield stream


Ctx = Context[OpenAiTarget]


async def open_at(server: OpenAiTarget, options: ProbeOptions, is_requested: bool) -> Opened[OpenAiTarget]:
    """Detect whether a server serves the API: it lists models, refuses an empty request with an error in OpenAI's form,
    or answers a plain request. If `is_requested`, the user named the protocol, so nothing is required. Otherwise raises
    NotSpoken."""
    # Probes test the list of models, so it is not validated here.
    listed = await server.wire.request("GET", server.below("models"), sends=None, receives=None)
    ids = [dig(each, "id") for each in as_list(dig(listed.json, "data"))]
    named = [each for each in ids if isinstance(each, str)]
    refused = await server.post({}, is_valid=False)
    # JSON-RPC has error objects too, but without a type.
    has_errors = isinstance(dig(refused.json, "error", "type"), str)
    server.model = named[0] if named else options.triggers["plain"].agent or server.model
    because = f"{refused} refuses an empty request" if has_errors else f"{listed} lists {len(named)} models"
    if (refused.status in (404, 405) or not (has_errors or named)) and not is_requested:
        answered = await server.post({"model": server.model, **server.ask(options.triggers["plain"].text)})
        if answered.status != 200 or not answered.is_json or dig(answered.json, "object") not in _ANSWERS:
            raise NotSpoken(
                f"it lists no models ({listed}) and answers neither an empty request ({refused}) nor {answered}"
            )
        because = f"{answered} answers {dig(answered.json, 'object')}"
    capabilities = {"second-caller"} if options.other_headers else set[str]()
    if any(name.lower() == "authorization" for name in options.headers):
        capabilities.add("keys")
    return Opened(server, server.url, because, frozenset(capabilities))


def base_of(url: str) -> str:
    parts = urlsplit(url)
    steps = parts.path.rstrip("/").split("/")
    at = next((index for index, step in enumerate(steps) if step in _PATHS), len(steps))
    return urlunsplit((parts.scheme, parts.netloc, "/".join(steps[:at]), "", ""))


def trigger_of(ctx: Ctx, behaviour: str) -> tuple[str, str]:
    """Return the model and the text that trigger a behaviour.

    Raises NotObserved if the user gave no trigger for the behaviour, and NotApplicable if the user states that the
    model never shows it.
    """
    trigger = ctx.triggers[behaviour]
    if trigger.is_never:
        raise NotApplicable("the owner declares that the model never does it")
    if not trigger.is_from_user and behaviour != "plain":
        raise NotObserved(NO_TRIGGER, behaviour)
    return trigger.agent or ctx.target.model, trigger.text


def speaking(ctx: Ctx) -> str:
    """Return the behaviour whose trigger streams use: `stream` if the user gave a trigger for it, otherwise `plain`."""
    trigger = ctx.triggers["stream"]
    return "stream" if trigger.is_from_user and not trigger.is_never else "plain"


async def read(stream: StreamExchange) -> list[Any]:
    """Read all events of a stream and return them as JSON. Raises Failed if the response is not a stream, or has no
    event."""
    exchange = stream.exchange
    check(exchange.status == 200, "a stream is answered with status 200", exchange.status, exchange)
    check(exchange.is_stream, "Content-Type text/event-stream", exchange.media_type, exchange)
    await stream.rest_of_it()
    events = events_of(exchange)
    check(bool(events), "an event", None, exchange)
    return events


def events_of(exchange: Exchange) -> list[Any]:
    """Return the events of a stream as JSON, without the final `[DONE]`. An event that is not JSON is None, because
    another requirement tests this."""
    return [frame.json_or_none for frame in exchange.frames if frame.data != DONE]


def check_answered(exchange: Exchange) -> None:
    """Check that a request for data in a JSON Schema has the status 200.

    Raises NotShown for an error with an error object, because a model may report that it cannot follow a schema. Raises
    Failed for any other status.
    """
    is_refusal = (exchange.status or 0) >= 400 and isinstance(dig(exchange.json, "error"), dict)
    check_shown(not is_refusal, "data", f"was refused with {exchange.status}")
    check(exchange.status == 200, "an answer with status 200, or an error", exchange.status, exchange)


def refused(exchange: Exchange, *statuses: int) -> None:
    """Raise Failed unless the response has one of the statuses, or any 4xx status if none is listed."""
    wanted = " or ".join(map(str, statuses)) if statuses else "a 4xx status"
    is_right = exchange.status in statuses if statuses else 400 <= (exchange.status or 0) < 500
    check(is_right, f"a refusal with {wanted}", exchange.status, exchange)
