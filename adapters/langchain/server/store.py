"""Routes of the store, which is memory outside of threads: items by namespace and key, and the list of namespaces."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from math import ceil
from typing import Any, Final

from litestar import Response, delete, get, post, put
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import list_response
from babelgate.adapters.langchain.codec.state import format_time
from babelgate.adapters.langchain.server.answers import answer, empty_answer
from babelgate.adapters.langchain.server.dialect import both, dialect_of
from babelgate.adapters.langchain.server.parameters import flag, principal_of, read_body, read_optional_body
from babelgate.adapters.langchain.wire import store as w
from babelgate.canonical import FaultCode, FaultError, Hub, Item, ItemQuery, Listed, NamespaceQuery
from babelgate.canonical.value import JsonObject

_AT: Final = "/store/{labels:str}/{key:str}"
"""Path of one item, with the labels of its namespace separated by dots, and its key. It is the gateway's own; LangGraph
and the Agent Protocol name items in the query or body."""


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = StoreHandlers(hub)
    return [
        put(both("/store/items"), status_code=200)(server.put),
        get(both("/store/items"))(server.get),
        delete(both("/store/items"), status_code=200)(server.delete),
        post(both("/store/items/search"), status_code=200)(server.search),
        post(both("/store/namespaces"), status_code=200)(server.namespaces),
        get(both(_AT))(server.get_at),
        post(both(_AT), status_code=200)(server.put_at),
        delete(both(_AT), status_code=200)(server.delete_at),
    ]


class StoreHandlers(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def put(self, request: AnyRequest) -> Response[Any]:
        body = await read_body(request, w.Put)
        # Minutes in LangGraph, seconds in the gateway.
        ttl = None if body.ttl is None else ceil(body.ttl * 60)
        await self._hub.store.put(principal_of(request), tuple(body.namespace), body.key, body.value, ttl)
        return empty_answer(204)

    async def get(self, request: AnyRequest) -> Response[Any]:
        """Return the item that the query names. An item that does not exist is null, or not_found in the Agent
        Protocol. Raises invalid for a wrong namespace or a missing key."""
        key = request.query_params.get("key")
        if not key:
            raise FaultError(FaultCode.INVALID, "key: required query parameter")
        # Reading an item restarts its ttl, unless the request says otherwise: `refresh_on_read` of langgraph 1.2's
        # stores.
        refresh = "refresh_ttl" not in request.query_params or flag(request, "refresh_ttl")
        item = await self._hub.store.get(principal_of(request), _namespace(request), key, refresh=refresh)
        # OpenAPI 0.1.6: 404. langgraph-api 0.16.7: 200 and null.
        if item is None and dialect_of(request) == "agent-protocol":
            raise FaultError(FaultCode.NOT_FOUND, "Item not found")
        return answer(None if item is None else _encode(item))

    async def delete(self, request: AnyRequest) -> Response[Any]:
        """Delete an item. An item that does not exist is an error only in the Agent Protocol. Raises invalid for a
        malformed body, and there not_found for an item that does not exist."""
        body = await read_body(request, w.Delete)
        existed = await self._hub.store.delete(principal_of(request), tuple(body.namespace or ()), body.key)
        # OpenAPI 0.1.6: 404. langgraph-api 0.16.7: 204, even if there was no item.
        if not existed and dialect_of(request) == "agent-protocol":
            raise FaultError(FaultCode.NOT_FOUND, "Item not found")
        return empty_answer(204)

    async def get_at(self, request: AnyRequest) -> Response[Any]:
        """Return the item in the path. Raises invalid for a wrong namespace or key, and not_found."""
        return answer(_encode(await self._item_at(request)))

    async def _item_at(self, request: AnyRequest) -> Item:
        item = await self._hub.store.get(principal_of(request), _labels(request), request.path_params["key"])
        if item is None:
            raise FaultError(FaultCode.NOT_FOUND, "Item not found")
        return item

    async def put_at(self, request: AnyRequest) -> Response[Any]:
        """Store the body as the value of the item in the path. Raises invalid for a body that is not an object, and
        too_large."""
        body = await read_body(request, w.Value)
        await self._hub.store.put(principal_of(request), _labels(request), request.path_params["key"], body.root)
        return answer(_encode(await self._item_at(request)))

    async def delete_at(self, request: AnyRequest) -> Response[Any]:
        """Delete the item in the path. Raises invalid for a wrong namespace or key, and not_found."""
        if not await self._hub.store.delete(principal_of(request), _labels(request), request.path_params["key"]):
            raise FaultError(FaultCode.NOT_FOUND, "Item not found")
        return empty_answer(204)

    async def search(self, request: AnyRequest) -> Response[Any]:
        principal, body = principal_of(request), await read_optional_body(request, w.Search)
        page = await self._hub.store.search(
            principal,
            ItemQuery(
                prefix=tuple(body.namespace_prefix or ()),
                filter=body.filter or {},
                text=body.query,
                limit=body.limit,
                offset=body.offset,
                refresh=body.refresh_ttl is not False,
            ),
        )
        # OpenAPI 0.1.6, components.schemas.SearchItemsResponse, as in all servers.
        return await list_response(b'{"items":[]}', _encode_items(page), name="items")

    async def namespaces(self, request: AnyRequest) -> Response[Any]:
        body = await read_optional_body(request, w.Namespaces)
        namespaces = await self._hub.store.namespaces(
            principal_of(request),
            NamespaceQuery(
                prefix=tuple(body.prefix or ()),
                suffix=tuple(body.suffix or ()),
                max_depth=body.max_depth,
                limit=body.limit,
                offset=body.offset,
            ),
        )
        if dialect_of(request) == "agent-protocol":
            return answer(namespaces)  # components.schemas.ListNamespaceResponse is the bare list
        # langgraph-api 0.16.7, aegra 0.11.0 and langgraph-sdk 0.4.14.
        listed: JsonObject = {"namespaces": namespaces}
        return answer(listed)


async def _encode_items(page: Listed[Item]) -> AsyncGenerator[bytes | LargeJson]:
    async with aclosing(aiter(page)) as items:
        async for item in items:
            yield encode(_encode(item))


def _namespace(request: AnyRequest) -> tuple[str, ...]:
    """Return the labels of the namespace in a query. The Agent Protocol sends `namespace=a&namespace=b`, LangGraph
    `namespace=a.b`. No label contains a dot, so both forms can be read alike."""
    texts: list[str] = request.query_params.getall("namespace", [])
    return tuple(label for text in texts if text for label in text.split("."))


def _labels(request: AnyRequest) -> tuple[str, ...]:
    return tuple(request.path_params["labels"].split("."))


def _encode(item: Item) -> JsonObject:
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": item.value,
        "created_at": format_time(item.created_at),
        "updated_at": format_time(item.updated_at),
    }
