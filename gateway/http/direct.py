"""Fast path around Litestar's handler chain: calls plain handlers directly.

Litestar calls about a hundred functions around each handler: error handlers by layer, arguments by type, an exit stack,
hooks. Nearly all handlers of the gateway take only the request and parameters of its path, and return a `Response`.
They are found in a tree of paths like Litestar's, and called directly. Litestar handles all other requests.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from litestar import Litestar, Request, Response
from litestar.routes import HTTPRoute
from litestar.types import Message, Send
from litestar.utils.scope.state import CONNECTION_STATE_KEY

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.sse import EventStream

_BODILESS: Final = frozenset({204, 304})
_JSON: Final = "application/json"
_HOST: Final = re.compile(rb"[0-9A-Za-z!$&'()*+,;=\-._~:\[\]@%]*")
"""Legal characters of `uri-host` and `port` in a Host header (RFC 3986, 3.2.2)."""


class _Plain(NamedTuple):
    """Handler that can be called directly, and the data that its call needs."""

    handler: Any
    names: tuple[str, ...]
    """Names of all parameters in the path of the route, in order."""
    arguments: tuple[str, ...]
    """Names of the path parameters that are arguments of the handler's function."""
    template: str
    """Path of the route with the names of its parameters, such as `/threads/{thread_id}`."""
    before: Callable[[AnyRequest], Awaitable[Response[Any] | None]] | None
    """Hook that is called before the handler; None if there is none. If it returns a response, the handler is not
    called."""


@dataclass(slots=True, eq=False)
class _Node:
    """Node in the tree of paths, for one segment of a path."""

    named: "dict[str, _Node]" = field(default_factory=dict[str, "_Node"])
    parameter: "_Node | None" = None
    handlers: dict[str, _Plain] = field(default_factory=dict[str, _Plain])
    """Handlers by HTTP method."""
    takes_rest: bool = False
    """True if the segment is a parameter that matches the rest of the path."""


class DirectApp(Litestar):
    """Litestar application that calls plain handlers directly, without Litestar's own steps around a handler."""

    def __init__(self, *args: Any, answer: Callable[[AnyRequest, Exception], Response[Any]], **named: Any) -> None:
        """Create the application. All arguments except `answer` are passed on to Litestar.

        `answer` creates the response to an exception. It is the only exception handler of all handlers.
        """
        super().__init__(*args, exception_handlers={Exception: answer}, **named)  # pyright: ignore[reportUnknownMemberType]
        self._answer = answer
        self._paths = _Node()
        for route in self.routes:
            if isinstance(route, HTTPRoute):
                _add(self._paths, route)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        plain = self._find(scope) if scope["type"] == "http" else None
        if plain is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = scope["litestar_app"] = self
        scope["route_handler"] = plain.handler
        request: AnyRequest = Request(scope, receive, send)
        try:
            response = await _call(plain, request)
        except Exception as error:
            response = self._answer(request, error)
        if _is_simple(response):
            await _send(response, plain.handler.status_code, send)
            return
        sender = _Sender(send)
        try:
            if type(response) is EventStream:
                asgi = response.to_asgi_response()
                # A stream may be silent for hours, and these take 2 KiB, mostly a copy of the headers.
                del request, response
                scope["state"].pop(CONNECTION_STATE_KEY, None)
            else:
                asgi = await plain.handler.to_response(app=self, data=response, request=request)
            await asgi(scope, receive, sender)
        except Exception as error:
            if sender.has_started:
                raise
            request = Request(scope, receive, send)
            asgi = await plain.handler.to_response(app=self, data=self._answer(request, error), request=request)
            await asgi(scope, receive, send)

    def _find(self, scope: Any) -> _Plain | None:
        """Return the plain handler of a request. Store the path parameters and the path of the route in the scope.

        Return None if the request has no plain handler, so that Litestar handles it.
        """
        if scope.get("root_path") or not _has_legal_host(scope):
            return None
        node, values = self._paths, list[str]()
        segments = scope["path"].split("/")
        for index in range(1, len(segments)):
            segment = segments[index]
            child = node.named.get(segment)
            if child is None:
                child = node.parameter
                if child is None or not segment:
                    return None
                if child.takes_rest:
                    if "" in (rest := segments[index:]):
                        return None
                    values.append("/" + "/".join(rest))
                    node = child
                    break
                values.append(segment)
            node = child
        plain = node.handlers.get(scope["method"])
        if plain is not None:
            scope["path_params"] = dict(zip(plain.names, values, strict=True))
            scope["path_template"] = plain.template
        return plain


def _has_legal_host(scope: Any) -> bool:
    """Return True if the Host header is absent or has only legal characters. Litestar refuses all other requests."""
    for name, value in scope["headers"]:
        if name == b"host":
            return _HOST.fullmatch(value) is not None
    return True


class _Sender:
    """ASGI `send` that records whether a response has started."""

    def __init__(self, send: Send) -> None:
        self.has_started = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        self.has_started = True
        await self._send(message)


async def _call(plain: _Plain, request: AnyRequest) -> Any:
    if plain.before is not None and (response := await plain.before(request)) is not None:
        return response
    values: Mapping[str, Any] = request.scope["path_params"]
    return await plain.handler.fn(request=request, **{name: values[name] for name in plain.arguments})


def _is_simple(response: Any) -> bool:
    """Return True if a response consists of bytes and has no cookies or background tasks, so that it can be sent
    without Litestar."""
    return (
        type(response) is Response
        and isinstance(cast("Any", response).content, bytes)
        and response.status_code not in _BODILESS
        and response.background is None
        and not response.cookies
    )


async def _send(response: Response[bytes], status: int, send: Send) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    present = {name for name, _ in headers}
    if b"content-type" not in present:
        media_type = str(response.media_type or _JSON)
        if media_type.startswith("text/"):
            media_type += f"; charset={response.encoding}"
        headers.append((b"content-type", media_type.encode("latin-1")))
    if b"content-length" not in present:
        headers.append((b"content-length", b"%d" % len(response.content)))
    await send({"type": "http.response.start", "status": response.status_code or status, "headers": headers})
    await send({"type": "http.response.body", "body": response.content, "more_body": False})


def _add(root: _Node, route: HTTPRoute) -> None:
    """Add a route to the tree of paths.

    The tree has the paths of all handlers. So a path that takes precedence in Litestar takes precedence in the tree,
    too.
    """
    node = root
    for part in route.path_components:
        if isinstance(part, str):
            node = node.named.setdefault(part, _Node())
        else:
            node.parameter = node = node.parameter or _Node()
            node.takes_rest = node.takes_rest or part.type is Path
    for handler in route.route_handlers:
        if (plain := _plain(handler, route)) is not None:
            node.handlers |= dict.fromkeys(map(str, handler.http_methods), plain)


def _plain(handler: Any, route: HTTPRoute) -> _Plain | None:
    """Return the data for direct calls of a handler.

    Return None if the handler uses features of Litestar other than the request, text parameters of the path, and a hook
    that is called before it.
    """
    parameters = [part for part in route.path_components if not isinstance(part, str)]
    texts = {part.name for part in parameters if part.type in (str, Path)}
    signature = handler.parsed_fn_signature.parameters
    arguments = [name for name, parameter in signature.items() if name in texts and parameter.annotation is str]
    app, *below = handler.ownership_layers
    features = (
        handler.has_sync_callable,
        handler.cache,
        handler.resolve_guards(),
        handler.resolve_middleware(),
        handler.resolve_dependencies(),
        any(layer.after_request for layer in (app, *below)),
        handler.resolve_after_response(),
        handler.resolve_response_headers(),
        handler.resolve_response_cookies(),
        any(layer.exception_handlers for layer in below),
        {"request", *arguments} != set(signature),
    )
    if any(features):
        return None
    names = tuple(part.name for part in parameters)
    return _Plain(handler, names, tuple(arguments), route.path_format, handler.resolve_before_request())
