"""OpenAPI 3.1 documents of what the gateway serves over REST, generated from the routes and the types of their bodies.

Paths, methods and statuses are those of the routes. Summaries are the docstrings of the handlers. The types come from
the description of each protocol (`babelgate.adapters.kit.server.rest`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, cast

from litestar.routes import BaseRoute, HTTPRoute
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from babelgate.adapters import ADAPTERS
from babelgate.adapters.kit.server.rest import RestDescription, RestOperation
from babelgate.canonical.value import JsonObject
from babelgate.gateway.http.operations import GATEWAY, Operations, find_protocol

_STATUS_TEXT: Final = {
    200: "The request succeeded.",
    201: "The resource was created.",
    202: "The request was accepted, and is completed later.",
    204: "The request succeeded. The response has no body.",
    307: "The resource is at another URL.",
}
_METHODS: Final = ("get", "put", "post", "patch", "delete")
_JSON: Final = "application/json"
_PREFIX: Final = "#/components/schemas/"
_UNDESCRIBED: Final = RestOperation()


def described_protocols() -> Sequence[str]:
    """Return the names of the protocols that have an OpenAPI document, and `gateway` for the routes that belong to no
    protocol."""
    return (GATEWAY, *(adapter.name for adapter in ADAPTERS if adapter.rest is not None))


class OpenApi:
    """Generator of the OpenAPI documents of one application's routes. It caches them."""

    def __init__(self, routes: Iterable[BaseRoute], gateway_rest: RestDescription) -> None:
        """Create the generator. `gateway_rest` describes the operations that belong to no protocol."""
        self._routes = [route for route in routes if isinstance(route, HTTPRoute)]
        self._descriptions = {GATEWAY: gateway_rest} | {
            adapter.name: adapter.rest for adapter in ADAPTERS if adapter.rest is not None
        }
        self._titles = {GATEWAY: "Gateway"} | {adapter.name: adapter.title for adapter in ADAPTERS}
        self._operations = Operations()
        self._documents: dict[str | None, JsonObject] = {}

    def document(self, base_url: str, protocol: str | None = None) -> JsonObject:
        """Return the document of a protocol, or of all protocols together if `protocol` is None. `base_url` is the URL
        at which the caller reaches the gateway. Raises KeyError for a protocol without a document."""
        if protocol not in self._documents:
            chosen = self._descriptions if protocol is None else {protocol: self._descriptions[protocol]}
            self._documents[protocol] = self._generate(chosen, None if protocol is None else self._titles[protocol])
        return {**self._documents[protocol], "servers": [{"url": base_url}]}

    def _generate(self, chosen: Mapping[str, RestDescription], title: str | None) -> JsonObject:
        types = _Types()
        found = list(self._find(chosen))
        for protocol, description in chosen.items():
            types.add(protocol, description.error, "serialization")
        for *_, protocol, _, operation, _ in found:
            types.add_operation(protocol, operation)
        schemas = types.generate()
        paths: dict[str, JsonObject] = {}
        for path, method, protocol, name, operation, handler in found:
            encoded = _Encoded(schemas, chosen[protocol].error, operation)
            paths.setdefault(path, {})[method] = {
                "operationId": _operation_id(protocol, name, method, path),
                "tags": [self._titles[protocol]],
                **_texts(handler),
                **encoded.members(path, handler),
            }
        document: JsonObject = {
            "openapi": "3.1.1",
            "info": {
                "title": "Babelgate" if title is None else f"Babelgate: {title}",
                "version": version("babelgate"),
                "summary": "Operations that this gateway serves over REST.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "tags": [_tag(self._titles[protocol], description) for protocol, description in chosen.items()],
            "paths": dict(sorted(paths.items())),
            "components": {
                "schemas": dict(sorted(schemas.definitions.items())),
                "securitySchemes": {
                    "bearer": {"type": "http", "scheme": "bearer"},
                    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
                },
            },
            "security": [{}, {"bearer": []}, {"key": []}],
        }
        return document

    def _find(self, chosen: Mapping[str, RestDescription]) -> Iterator[tuple[str, str, str, str, RestOperation, Any]]:
        """Yield path, method, protocol, name, description and handler of each operation of the protocols in
        `chosen`."""
        for route in self._routes:
            path = "/" + "/".join(
                part if isinstance(part, str) else f"{{{part.name}}}" for part in route.path_components
            )
            protocol = find_protocol(path)
            if protocol not in chosen:
                continue
            for handler in route.route_handlers:
                scope: JsonObject = {"route_handler": handler, "path": path, "state": {}}
                _, name = self._operations.find(scope)
                operation = chosen[protocol].operations.get(name, _UNDESCRIBED)
                for key, each in operation.within.items():
                    method, _, segment = key.partition(" ")
                    yield f"{path.rpartition('/')[0]}/{segment}", method, protocol, name, each, handler
                if operation.within:
                    continue
                for method in sorted(str(each).lower() for each in handler.http_methods):
                    if method in _METHODS:
                        yield path, method, protocol, name, operation, handler


def _tag(title: str, description: RestDescription) -> JsonObject:
    documented: JsonObject = {"externalDocs": {"url": description.official}} if description.official else {}
    return {"name": title, **documented}


def _operation_id(protocol: str, name: str, method: str, path: str) -> str:
    """Return a unique `operationId`, such as `acp.create_run.post.acp_runs`. It has the method and the path, because
    one handler may serve several."""
    below = re.sub(r"[^A-Za-z0-9]+", "_", path).strip("_")
    return f"{protocol}.{name}.{method}.{below}" if below else f"{protocol}.{name}.{method}"


def _texts(handler: Any) -> JsonObject:
    """Return summary and description of an operation from the docstring of its handler."""
    text = " ".join((handler.fn.__doc__ or "").replace("``", "`").split())
    summary, *others = (each for each in text.split(". ") if not each.startswith("Raises "))
    rest = ". ".join(others)
    texts: JsonObject = {"summary": summary.rstrip(".")} if summary else {}
    return {**texts, "description": rest} if rest else texts


class _Types:
    """Collection of the types of request and response bodies, which generates their JSON Schemas for `components`."""

    def __init__(self) -> None:
        self._inputs: dict[tuple[str, JsonSchemaMode], TypeAdapter[Any]] = {}
        self._keys: dict[tuple[int, JsonSchemaMode], str] = {}
        self._held: list[Any] = []
        """Types that were added. The references keep them alive, because their `id` is a key."""
        self._schemas: Mapping[tuple[str, JsonSchemaMode], JsonObject] = {}
        self.definitions: Mapping[str, JsonObject] = {}

    def add(self, protocol: str, described: Any, mode: JsonSchemaMode) -> None:
        """Add the type of a body, to be read (`validation`) or written (`serialization`). None and `Any` are
        ignored."""
        if described is None or described is Any or (id(described), mode) in self._keys:
            return
        key = f"{protocol}.{len(self._keys)}"
        self._held.append(described)
        self._keys[id(described), mode] = key
        self._inputs[key, mode] = TypeAdapter(described)

    def add_operation(self, protocol: str, operation: RestOperation) -> None:
        """Add the types of an operation's request and response bodies."""
        self.add(protocol, operation.body, "validation")
        for described in (operation.returns, operation.streams, *operation.other.values()):
            self.add(protocol, described, "serialization")

    def generate(self) -> "_Types":
        """Generate the schemas of all added types, and return this object."""
        inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
            (key, mode, adapter) for (key, mode), adapter in self._inputs.items()
        ]
        schemas, shared = TypeAdapter.json_schemas(inputs, ref_template=_PREFIX + "{model}")
        names = _short_names(shared.get("$defs", {}))
        self.definitions = {names[name]: _rename(schema, names) for name, schema in shared.get("$defs", {}).items()}
        self._schemas = {(key, mode): _rename(schema, names) for (key, mode), schema in schemas.items()}
        return self

    def schema(self, described: Any, mode: JsonSchemaMode) -> JsonObject:
        """Return the schema of an added type. None and `Any` have the empty schema, which any JSON satisfies."""
        if described is None or described is Any:
            return {}
        return dict(self._schemas[self._keys[id(described), mode], mode])


def _short_names(schemas: Iterable[str]) -> Mapping[str, str]:
    """Return short names for schemas, by the long name that pydantic gives types with equal names, which contains their
    module.

    A short name is the protocol and the type, such as `acp.Run`. If it is taken, the module is inserted.
    """
    names: dict[str, str] = {}
    for name in sorted(schemas):
        _, is_long, rest = name.partition("__adapters__")
        protocol, *modules, last = rest.split("__") if is_long else ("", name)
        shorts = [f"{protocol}.{last}", f"{protocol}.{modules[-1] if modules else ''}.{last}"] if is_long else [name]
        names[name] = next(short for short in (*shorts, name) if short not in names.values())
    return names


def _rename(schema: Any, names: Mapping[str, str]) -> Any:
    """Return a schema whose references use the short names of schemas."""
    if isinstance(schema, dict):
        return {
            key: f"{_PREFIX}{names[value.removeprefix(_PREFIX)]}"
            if key == "$ref" and isinstance(value, str) and value.startswith(_PREFIX)
            else _rename(value, names)
            for key, value in cast("JsonObject", schema).items()
        }
    return [_rename(each, names) for each in cast("list[Any]", schema)] if isinstance(schema, list) else schema


class _Encoded:
    """Encoder of one operation for an OpenAPI document."""

    def __init__(self, types: _Types, error: Any, operation: RestOperation) -> None:
        self._types = types
        self._error = error
        self._operation = operation

    def members(self, path: str, handler: Any) -> JsonObject:
        """Return the members `parameters`, `requestBody` and `responses` of the operation. `path` has its path
        parameters, and `handler` its status."""
        operation = self._operation
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)\}", path)
        ]
        for place, described in (("query", operation.query), ("header", operation.headers)):
            parameters += [{"name": name, "in": place, "schema": {"type": kind}} for name, kind in described.items()]
        members: JsonObject = {"parameters": parameters} if parameters else {}
        if operation.body is not None:
            schema = self._types.schema(operation.body, "validation")
            members["requestBody"] = {
                "required": not operation.is_body_optional,
                "content": {operation.body_media_type: {"schema": schema}},
            }
        return {**members, "responses": self._responses(handler.status_code)}

    def _responses(self, status: int) -> JsonObject:
        """Return the responses of the operation by status. `status` is that of a success."""
        operation = self._operation
        responses: JsonObject = {str(status): self._success(status, operation.returns, has_stream=True)}
        for other, described in operation.other.items():
            responses[str(other)] = self._success(other, described, has_stream=False)
        error = {"schema": self._types.schema(self._error, "serialization")}
        responses["default"] = {"description": "The request failed.", "content": {_JSON: error}}
        return responses

    def _success(self, status: int, described: Any, *, has_stream: bool) -> JsonObject:
        """Return the response for a successful status, whose body has the type `described`. `has_stream` is True if the
        operation may send a stream instead."""
        operation = self._operation
        response: JsonObject = {"description": _STATUS_TEXT.get(status, "The request succeeded.")}
        if status == 204:
            return response
        content: JsonObject = {}
        if not operation.is_stream_only:
            content[operation.media_type] = {"schema": self._types.schema(described, "serialization")}
        if has_stream and operation.streams is not None:
            # OpenAPI 3.2 has `itemSchema` for this. In 3.1 the schema is that of the data of one event.
            content["text/event-stream"] = {"schema": self._types.schema(operation.streams, "serialization")}
        return {**response, "content": content}
