"""Litestar's registration of handlers, made quick: what comes of a signature is kept for the next app that has it, and
an app that nobody needs any more for the next one of the same handlers.

Each app parses its handlers anew, and for each route looks at all of those before it. These tests make thousands of
apps of the same handlers, at 0.1 s each. `babelgate serve` makes one.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from types import MethodType
from typing import Any, Final, TypeVar, cast

from litestar import Litestar, Router
from litestar._asgi import asgi_router
from litestar._kwargs.kwargs_model import KwargsModel
from litestar._signature.model import SignatureModel
from litestar.handlers import HTTPRouteHandler
from litestar.params import ParameterKwarg
from litestar.routes import HTTPRoute
from litestar.utils.signature import ParsedSignature

T = TypeVar("T")
Register = Callable[[Sequence[Any]], Litestar]


def quicken_registration() -> None:
    """From now on, in this process."""
    signature, struct, kwargs, app = cast("list[Any]", [ParsedSignature, SignatureModel, KwargsModel, Litestar])
    router, router_type, parameter = cast("list[Any]", [asgi_router, Router, ParameterKwarg])
    parse, model, arguments = signature.from_fn, struct.create, kwargs.create_for_signature_model
    parsed: dict[Hashable, Any] = {}
    models: dict[Hashable, Any] = {}
    known: dict[Hashable, Any] = {}

    def from_fn(fn: Any, signature_namespace: dict[str, Any]) -> Any:
        bare = fn.__func__ if isinstance(fn, MethodType) else fn
        code = getattr(bare, "__code__", None)
        if code is None:
            return parse(fn, signature_namespace)
        # By identity: code is equal wherever it is the same.
        return _kept(parsed, (id(code), fn is bare), lambda: (parse(fn, signature_namespace), code))[0]

    def create(parsed_signature: Any, **given: Any) -> Any:
        if given["dependency_name_set"] or given.get("data_dto"):
            return model(parsed_signature=parsed_signature, **given)
        # By the types that they are for: each app has decoders of its own, made in the same way.
        key = (id(parsed_signature), *(is_for for is_for, _ in given["type_decoders"]))
        return _kept(models, key, lambda: (model(parsed_signature=parsed_signature, **given), parsed_signature))[0]

    def create_for_signature_model(signature_model: Any, path_parameters: set[str], **given: Any) -> Any:
        if given["dependencies"] or given["layered_parameters"]:
            return arguments(signature_model=signature_model, path_parameters=path_parameters, **given)
        key = (signature_model, frozenset(path_parameters))
        return _kept(
            known, key, lambda: arguments(signature_model=signature_model, path_parameters=path_parameters, **given)
        )

    copied: Any = router_type.get_route_handler_map.__func__

    def handler_map(kind: Any, value: Any) -> Any:
        """A Router copies what it is given, and an app copies it once more."""
        if kind is not Router or not isinstance(value, HTTPRouteHandler):
            return copied(kind, value)
        return {path: dict.fromkeys(value.http_methods, value) for path in value.paths}

    signature.from_fn = from_fn
    struct.create = create
    kwargs.create_for_signature_model = create_for_signature_model
    app.route_handler_method_map = property(_At)
    router_type.get_route_handler_map = classmethod(handler_map)
    # Each handler that is registered has the whole tree of routes looked through once more.
    router.validate_node = _is_valid
    # Every `FromPath[str]` is hashed, by a copy of all of its fields.
    parameter.__hash__ = _hash_of_name


@contextmanager
def registering(create: Register) -> Generator[Register]:
    """`create`, of whose apps each is the next one's when the block is over."""
    taken: list[_Registered] = []

    def register(handlers: Sequence[Any]) -> Litestar:
        # Routers give theirs in any order.
        flat = sorted(_flat(handlers), key=_place)
        free = _FREE[tuple((*_place(each), _code(each.fn)) for each in flat)]
        found = free.pop() if free else _Registered(create(handlers), flat, free)
        found.become(flat)
        taken.append(found)
        return found.app

    try:
        yield register
    finally:
        for each in taken:
            each.free.append(each)


class _Registered:
    """An app whose handlers can be exchanged for others of the same routes: all that they know, they know by what they
    close over or are bound to, and a gateway's are its own."""

    def __init__(self, app: Litestar, handlers: Sequence[Any], free: "list[_Registered]") -> None:
        self.app = app
        self.free = free
        functions = [each.fn for each in handlers]
        # Litestar registers copies.
        self._copies = [
            (copy, functions.index(copy.fn))
            for route in app.routes
            for copy in _of_route(route)
            if copy.fn in functions
        ]
        assert {place for _, place in self._copies} == {functions.index(each) for each in functions}

    def become(self, handlers: Sequence[Any]) -> None:
        for copy, place in self._copies:
            copy._fn = handlers[place].fn


_FREE: Final[defaultdict[Hashable, list[_Registered]]] = defaultdict(list)


def _flat(handlers: Iterable[Any]) -> Iterator[Any]:
    for each in handlers:
        if isinstance(each, Router):
            for route in each.routes:
                # Litestar adds one that answers OPTIONS, which knows the route and nothing else.
                yield from (handler for handler in _of_route(route) if _methods(handler) != {"OPTIONS"})
        else:
            yield each


def _of_route(route: Any) -> Sequence[Any]:
    return getattr(route, "route_handlers", None) or [route.route_handler]


def _place(handler: Any) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    return tuple(sorted(handler.paths)), tuple(sorted(_methods(handler))), handler.fn.__qualname__


def _methods(handler: Any) -> Set[str]:
    """None of a WebSocket."""
    return set(getattr(handler, "http_methods", ()))


def _code(function: Any) -> Any:
    return getattr(function, "__func__", function).__code__


def _hash_of_name(parameter: Any) -> int:
    return hash(parameter.name)


def _is_valid(node: Any) -> None:
    """The routes are those of `babelgate serve`, which looks."""


class _At:
    """Of the map of an app's handlers by path, as much as registration asks for."""

    def __init__(self, app: Litestar) -> None:
        self._app = app

    def get(self, path: str, default: Any) -> Mapping[str, Any]:
        found = dict(default)
        for route in self._app.routes:
            if route.path == path and isinstance(route, HTTPRoute):
                found |= {method: handler for handler in route.route_handlers for method in handler.http_methods}
        return found


def _kept(values: dict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
    if key not in values:
        values[key] = make()
    return values[key]
