"""Routes of OpenAI's APIs: models, chat completions, responses and conversations. The gateway shows each run as a
completion and as a response."""

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response, Router, delete, get, post, websocket

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.extended import answer_file, confirm, is_activated
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.openai.agents import encode_model
from babelgate.adapters.openai.server.answers import error_response
from babelgate.adapters.openai.server.chat import ChatCompletions
from babelgate.adapters.openai.server.compact import Compact
from babelgate.adapters.openai.server.conversations import Conversations
from babelgate.adapters.openai.server.create_response import CreateResponse
from babelgate.adapters.openai.server.lookup import find_agent
from babelgate.adapters.openai.server.response_socket import ResponseSocket
from babelgate.adapters.openai.server.responses import Responses
from babelgate.adapters.openai.server.stored import StoredCompletions
from babelgate.adapters.openai.wire import replies as w
from babelgate.canonical import Fault, FaultCode, Hub

__all__ = ("answer_fault", "routes")


def routes(hub: Hub) -> Sequence[Router]:
    """Return the routes of both APIs."""
    models, chat, stored, compact = Models(hub), ChatCompletions(hub), StoredCompletions(hub), Compact(hub)
    create, responses, conversations = CreateResponse(hub), Responses(hub), Conversations(hub)
    conversation = "/conversations/{conversation_id:str}"
    completions, response = "/chat/completions", "/responses/{response_id:str}"
    return [
        Router(
            "/v1",
            route_handlers=[
                get("/models")(models.list_models),
                get("/models/{model:str}")(models.get_model),
                get("/models/{model:str}/files/{blob:str}")(models.get_file),
                post(completions, status_code=200)(chat.create),
                get(completions)(stored.list_completions),
                get(f"{completions}/{{completion_id:str}}")(stored.get_completion),
                post(f"{completions}/{{completion_id:str}}", status_code=200)(stored.change_completion),
                delete(f"{completions}/{{completion_id:str}}", status_code=200)(stored.delete_completion),
                get(f"{completions}/{{completion_id:str}}/messages")(stored.list_messages),
                post("/responses", status_code=200)(create.create),
                websocket("/responses")(ResponseSocket(hub, create).talk),
                post("/responses/compact", status_code=200)(compact.compact),
                get(response)(responses.get_response),
                delete(response, status_code=200)(responses.delete_response),
                post(f"{response}/cancel", status_code=200)(responses.cancel_response),
                get(f"{response}/input_items")(responses.list_input_items),
                post("/conversations", status_code=200)(conversations.create_conversation),
                get(conversation)(conversations.get_conversation),
                post(conversation, status_code=200)(conversations.change_conversation),
                delete(conversation, status_code=200)(conversations.delete_conversation),
                get(f"{conversation}/items")(conversations.list_items),
                post(f"{conversation}/items", status_code=200)(conversations.add_items),
                get(f"{conversation}/items/{{item_id:str}}")(conversations.get_item),
                delete(f"{conversation}/items/{{item_id:str}}", status_code=200)(conversations.delete_item),
            ],
        )
    ]


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return the error response for a fault. For an unknown path, the text lists the paths that exist."""
    if fault.code is FaultCode.NOT_FOUND and fault.message == _NO_ROUTE:  # for example, embeddings
        path = request.scope["path"][:100]
        served = "/v1/models, /v1/chat/completions, /v1/responses and /v1/conversations"
        words = f"{request.method} {path} is not served: {served} are."
        fault = fault.replace(message=words)
    elif fault.code is FaultCode.METHOD_NOT_ALLOWED and request.method == "POST":
        why = next((why for path, why in _ABSENT.items() if request.scope["path"].endswith(path)), None)
        if why is not None:  # one of OpenAI's paths that is not served, but matches the path of a response
            fault = Fault(code=FaultCode.NOT_FOUND, message=why)
    return error_response(fault)


_ABSENT: Final = {
    "/v1/responses/input_tokens": "Tokens of an input cannot be counted: agents have no tokenizer.",
}
"""Error texts for paths of OpenAI that the gateway does not serve, although they match the route of a response."""

_NO_ROUTE: Final = "Not Found"
"""Message of Litestar's fault if no route matches the path."""


class Models(Handlers):
    """Handlers of the routes for models, which are the gateway's agents."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def list_models(self, request: AnyRequest) -> Response[Any]:
        """Return all agents as models. If the base URL of the request is that of one agent, return only this agent."""
        who = caller(request)
        infos = self._hub.agents(who.principal)
        if who.has_single_agent:
            infos = [info for info in infos if info.name == who.agent]
        models = [encode_model(info) for info in infos]
        ids = [model.id for model in models] or [None]
        return json_response(w.Models(data=models, first_id=ids[0], last_id=ids[-1]))

    async def get_model(self, request: AnyRequest) -> Response[Any]:
        """Return the model in the path. Raises not_found."""
        found = find_agent(self._hub, caller(request).principal, request.path_params["model"])
        return json_response(encode_model(found), confirm(active=is_activated(request)))

    async def get_file(self, request: AnyRequest) -> Response[Any]:
        """Return the bytes of a file by its hash, for clients of the Babelgate extension: records name files by hash.
        Raises not_found."""
        find_agent(self._hub, caller(request).principal, request.path_params["model"])
        return await answer_file(self._hub, request, request.path_params["blob"])
