"""Fast registration of handlers in Litestar.

The models of a signature are reused by the next app that has it, and an app that is no longer used is reused for the
same handlers. Normally each app parses its handlers again, and compares each route with all before it. These tests
create thousands of apps of the same handlers, at 0.1 s each; `babelgate serve` creates one.
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
    """Make registration fast in this process from now on."""
    signature, struct, kwargs, app = cast("list[Any]", [ParsedSignature, SignatureModel, KwargsModel, Litestar])
    router, router_type, parameter = cast("list[Any]", [asgi_router, Router, ParameterKwarg])
    parse, model, arguments = signature.from_fn, struct.create, kwargs.create_for_signature_model
    parsed: dict[Hashable, Any] = {}
    models: dict[Hashable, Any] = {}
    arguments_by_key: dict[Hashable, Any] = {}

    def from_fn(fn: Any, signature_namespace: dict[str, Any]) -> Any:
        bare = fn.__func__ if isinstance(fn, MethodType) else fn
        code = getattr(bare, "__code__", None)
        if code is None:
            return parse(fn, signature_namespace)
        # By identity, because equal code objects compare equal.
        return _cached(parsed, (id(code), fn is bare), lambda: (parse(fn, signature_namespace), code))[0]

    def create(parsed_signature: Any, **options: Any) -> Any:
        if options["dependency_name_set"] or options.get("data_dto"):
            return model(parsed_signature=parsed_signature, **options)
        # By the types that they decode: each app creates its own decoders in the same way.
        key = (id(parsed_signature), *(is_for for is_for, _ in options["type_decoders"]))
        return _cached(models, key, lambda: (model(parsed_signature=parsed_signature, **options), parsed_signature))[0]

    def create_for_signature_model(signature_model: Any, path_parameters: set[str], **options: Any) -> Any:
        if options["dependencies"] or options["layered_parameters"]:
            return arguments(signature_model=signature_model, path_parameters=path_parameters, **options)
        key = (signature_model, frozenset(path_parameters))
        return _cached(
            arguments_by_key,
            key,
            lambda: arguments(signature_model=signature_model, path_parameters=path_parameters, **options),
        )

    copied: Any = router_type.get_route_handler_map.__func__

    def handler_map(kind: Any, value: Any) -> Any:
        """Return the handlers of a Router without a copy: the app copies them anyway."""
        if kind is not Router or not isinstance(value, HTTPRouteHandler):
            return copied(kind, value)
        return {path: dict.fromkeys(value.http_methods, value) for path in value.paths}

    signature.from_fn = from_fn
    struct.create = create
    kwargs.create_for_signature_model = create_for_signature_model
    app.route_handler_method_map = property(_At)
    router_type.get_route_handler_map = classmethod(handler_map)
    # For each registered handler, Litestar searches the whole tree of routes again.
    router.validate_node = _is_valid
    # Every `FromPath[str]` is hashed, through a copy of all of its fields.
    parameter.__hash__ = _hash_of_name


@contextmanager
def registering(create: Register) -> Generator[Register]:
    """Yield `create`, but reuse its apps: each is free for the next block after this one."""
    used: list[_Registered] = []

    def register(handlers: Sequence[Any]) -> Litestar:
        # Routers return their handlers in any order.
        flat = sorted(_flat(handlers), key=_place)
        free = _FREE[tuple((*_place(each), _code(each.fn)) for each in flat)]
        found = free.pop() if free else _Registered(create(handlers), flat, free)
        found.become(flat)
        used.append(found)
        return found.app

    try:
        yield register
    finally:
        for each in used:
            each.free.append(each)


class _Registered:
    """An app whose handlers can be exchanged for others of the same routes.

    This works because handlers hold all their state in closures or bound objects, which each gateway has separately.
    """

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
                # Litestar adds one that answers OPTIONS and depends only on the route.
                yield from (handler for handler in _of_route(route) if _methods(handler) != {"OPTIONS"})
        else:
            yield each


def _of_route(route: Any) -> Sequence[Any]:
    return getattr(route, "route_handlers", None) or [route.route_handler]


def _place(handler: Any) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    return tuple(sorted(handler.paths)), tuple(sorted(_methods(handler))), handler.fn.__qualname__


def _methods(handler: Any) -> Set[str]:
    """Return the HTTP methods of a handler; none for a WebSocket."""
    return set(getattr(handler, "http_methods", ()))


def _code(function: Any) -> Any:
    return getattr(function, "__func__", function).__code__


def _hash_of_name(parameter: Any) -> int:
    return hash(parameter.name)


def _is_valid(node: Any) -> None:
    """Skip the validation of the routes, which `babelgate serve` performs."""


class _At:
    """Substitute for an app's map of handlers by path, with the part that registration uses."""

    def __init__(self, app: Litestar) -> None:
        self._app = app

    def get(self, path: str, default: Any) -> Mapping[str, Any]:
        found = dict(default)
        for route in self._app.routes:
            if route.path == path and isinstance(route, HTTPRoute):
                found |= {method: handler for handler in route.route_handlers for method in handler.http_methods}
        return found


def _cached(values: dict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
    if key not in values:
        values[key] = make()
    return values[key]
