"""Fast path around Litestar's handler chain: plain handlers, called without the framework's steps around them.

Litestar takes each request through a hundred functions around its handler: error handlers by layer, arguments by type,
an exit stack, hooks. Nearly all handlers here take the request and names from its path, and give a `Response`. They are
found in a tree of paths like Litestar's, and called at once; any other request goes the framework's way.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from litestar import Litestar, Request, Response
from litestar.routes import HTTPRoute
from litestar.types import Message, Send

AnyRequest = Request[Any, Any, Any]
_BODILESS: Final = frozenset({204, 304})
_JSON: Final = "application/json"
_HOST: Final = re.compile(rb"[0-9A-Za-z!$&'()*+,;=\-._~:\[\]@%]*")
"""Octets of `uri-host` and `port` (RFC 3986, 3.2.2)."""


class _Plain(NamedTuple):
    handler: Any
    names: tuple[str, ...]
    """Of the parameters in the path, in their order."""
    taken: tuple[str, ...]
    """Those that the function takes."""
    before: Callable[[AnyRequest], Awaitable[Response[Any] | None]] | None
    """What is asked first; its answer stands."""


@dataclass(slots=True, eq=False)
class _Node:
    """A segment of paths."""

    named: "dict[str, _Node]" = field(default_factory=dict[str, "_Node"])
    parameter: "_Node | None" = None
    handlers: dict[str, _Plain] = field(default_factory=dict[str, _Plain])
    """By method."""
    takes_rest: bool = False
    """A parameter that is the rest of a path."""


class DirectApp(Litestar):
    """`answer` makes the response of an error. It is the only exception handler that handlers have."""

    def __init__(self, *args: Any, answer: Callable[[AnyRequest, Exception], Response[Any]], **named: Any) -> None:
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
        told = _Sending(send)
        try:
            asgi = await plain.handler.to_response(app=self, data=response, request=request)
            await asgi(scope, receive, told)
        except Exception as error:
            if told.begun:
                raise
            asgi = await plain.handler.to_response(app=self, data=self._answer(request, error), request=request)
            await asgi(scope, receive, send)

    def _find(self, scope: Any) -> _Plain | None:
        """The handler of the path and the method, with the path's parameters in the scope."""
        if scope.get("root_path") or not _has_legal_host(scope):
            return None
        node, values = self._paths, list[str]()
        for segment in scope["path"].split("/")[1:]:
            found = node.named.get(segment)
            if found is None:
                found = node.parameter
                if found is None or found.takes_rest or not segment:
                    return None
                values.append(segment)
            node = found
        plain = node.handlers.get(scope["method"])
        if plain is not None:
            scope["path_params"] = dict(zip(plain.names, values, strict=True))
        return plain


def _has_legal_host(scope: Any) -> bool:
    """The framework refuses others."""
    for name, value in scope["headers"]:
        if name == b"host":
            return _HOST.fullmatch(value) is not None
    return True


class _Sending:
    """`send`, and whether an answer was begun."""

    def __init__(self, send: Send) -> None:
        self.begun = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)


async def _call(plain: _Plain, request: AnyRequest) -> Any:
    if plain.before is not None and (response := await plain.before(request)) is not None:
        return response
    given: Mapping[str, Any] = request.scope["path_params"]
    return await plain.handler.fn(request=request, **{name: given[name] for name in plain.taken})


def _is_simple(response: Any) -> bool:
    """Whether it is bytes that are sent as they are."""
    return (
        type(response) is Response
        and isinstance(cast("Any", response).content, bytes)
        and response.status_code not in _BODILESS
        and response.background is None
        and not response.cookies
        and not str(response.media_type).startswith("text/")  # the framework adds a charset
    )


async def _send(response: Response[bytes], status: int, send: Send) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    given = {name for name, _ in headers}
    if b"content-type" not in given:
        headers.append((b"content-type", str(response.media_type or _JSON).encode("latin-1")))
    if b"content-length" not in given:
        headers.append((b"content-length", b"%d" % len(response.content)))
    await send({"type": "http.response.start", "status": response.status_code or status, "headers": headers})
    await send({"type": "http.response.body", "body": response.content, "more_body": False})


def _add(root: _Node, route: HTTPRoute) -> None:
    """All paths are in the tree: a plain handler is hidden by what hides it from the framework."""
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
    """None where the handler needs more of the framework."""
    parameters = [part for part in route.path_components if not isinstance(part, str)]
    texts = {part.name for part in parameters if part.type is str}
    given = handler.parsed_fn_signature.parameters
    taken = [name for name, each in given.items() if name in texts and each.annotation is str]
    app, *below = handler.ownership_layers
    more = (
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
        {"request", *taken} != set(given),
    )
    if any(more):
        return None
    return _Plain(handler, tuple(part.name for part in parameters), tuple(taken), handler.resolve_before_request())
