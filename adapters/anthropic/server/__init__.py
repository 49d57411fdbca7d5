"""Routes of the Messages API: create a message, and list the models. The gateway shows each run as a message."""

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response, Router, get, post
from litestar.handlers import HTTPRouteHandler

from babelgate.adapters.anthropic.agents import encode_model, encode_models
from babelgate.adapters.anthropic.server.answers import error_response
from babelgate.adapters.anthropic.server.create_message import CreateMessage
from babelgate.adapters.anthropic.server.lookup import find_agent
from babelgate.adapters.anthropic.server.stored import StoredMessages
from babelgate.adapters.kit.json import read_json
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import Fault, FaultCode, FaultError, Hub

__all__ = ("BASE", "answer_fault", "routes")

BASE: Final = "/anthropic"
"""Path below which all routes of the API are served. Outside of it, the routes of messages are also served at `/v1`.
`/v1/models` is a route of OpenAI's API, which also answers clients of this one."""
_NO_ROUTE: Final = "Not Found"
"""Message of Litestar's fault if no route matches the path."""
_SERVED: Final = "/v1/messages and /v1/models"


def routes(hub: Hub) -> Sequence[Router]:
    """Return the routes of the API, at its own path and below `BASE`."""
    models, create, stored = ModelList(hub), CreateMessage(hub), StoredMessages(hub)
    message = "/messages/{message_id:str}"

    def message_routes() -> list[HTTPRouteHandler]:
        return [
            post("/messages", status_code=200)(create.create),
            post("/messages/count_tokens", status_code=200)(models.count_tokens),
            get(message)(stored.get_message),
            post(f"{message}/cancel", status_code=200)(stored.cancel_message),
            get("/messages/files/{blob:str}")(stored.get_file),
        ]

    listed = [get("/models")(models.list_models), get("/models/{model:str}")(models.get_model)]
    return [
        Router("/v1", route_handlers=message_routes()),
        Router(f"{BASE}/v1", route_handlers=[*message_routes(), *listed]),
    ]


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return the error response for a fault. For an unknown path, the text lists the paths that exist."""
    if fault.code is FaultCode.NOT_FOUND and fault.message == _NO_ROUTE:
        words = f"{request.method} {request.scope['path'][:100]} is not served: {_SERVED} are."
        fault = fault.replace(message=words)
    return error_response(fault)


class ModelList(Handlers):
    """Handlers of the routes for models, which are the gateway's agents."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def list_models(self, request: AnyRequest) -> Response[Any]:
        """Return all agents as models. If the base URL of the request is that of one agent, return only this agent."""
        who = caller(request)
        infos = self._hub.agents(who.principal)
        if who.has_single_agent:
            infos = [info for info in infos if info.name == who.agent]
        return json_response(encode_models(infos))

    async def get_model(self, request: AnyRequest) -> Response[Any]:
        """Return the model in the path. Raises not_found."""
        return json_response(encode_model(find_agent(self._hub, caller(request), request.path_params["model"])))

    async def count_tokens(self, request: AnyRequest) -> Response[Any]:
        """Refuse to count the tokens of a request, because agents have no tokenizer. Clients then estimate the number.
        Raises not_found."""
        await read_json(request)
        raise FaultError(FaultCode.NOT_FOUND, "Tokens cannot be counted: agents have no tokenizer.")
