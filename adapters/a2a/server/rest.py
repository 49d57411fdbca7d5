"""Routes of A2A over REST, for both versions. The paths of 1.0 begin right after an agent's URL, those of 0.3 with
`/v1`.

The methods are the same, so one function creates the routes of both. A version has its own dialect, and its own names
for the params that come from the path.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from litestar import HttpMethod, Response, delete, get, post, route
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler
from pydantic_core import to_json

from babelgate.adapters.a2a.codec import v0_3_rest, v1_0
from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.errors import rest_error, rest_error_0_3
from babelgate.adapters.kit.headers import is_preferred, read_line
from babelgate.adapters.kit.json import ABSENT, read_json
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.adapters.kit.server.listed import list_response
from babelgate.adapters.kit.server.sse import event_stream, frame, frame_of, pieces_of
from babelgate.adapters.kit.server.tracing import find_tracer
from babelgate.canonical import Fault, FaultCode, FaultError, Hub
from babelgate.canonical.value import JsonObject

from . import card, operation, push
from .call import Answer, Call, Operation, Stream, check_version, make_call
from .jsonrpc import PING
from .trace import describe

A2A_JSON: Final = "application/a2a+json"


@dataclass(frozen=True, slots=True)
class RestGeneration:
    """Path prefix, dialect and parameter names of REST in one version."""

    prefix: str
    dialect: type[Dialect]
    config_id: str
    """Name of the method's parameter for the id of a push notification config."""
    task_of_config: str
    """Name of the method's parameter for the id of the task to which a push notification config belongs."""


V1_0: Final = RestGeneration("", v1_0.Codec, config_id="id", task_of_config="taskId")
V0_3: Final = RestGeneration("/v1", v0_3_rest.Codec, config_id="pushNotificationConfigId", task_of_config="id")


def encode_fault(fault: Fault, *, old: bool) -> JsonObject:
    return rest_error_0_3(fault) if old else rest_error(fault)


def _media_type(request: AnyRequest) -> str:
    """Return the media type of a response: `application/a2a+json` (1.0.1) if the client prefers it, and otherwise
    `application/json`, which many clients expect."""
    accept = read_line(request.scope["headers"], "accept")
    return A2A_JSON if is_preferred(accept, A2A_JSON, "application/json") else "application/json"


async def _body(request: AnyRequest) -> JsonObject:
    body = await read_json(request)
    if body is ABSENT:
        return {}
    if not isinstance(body, dict):
        raise FaultError(FaultCode.INVALID, "The body must be a JSON object.")
    return body


def _query(request: AnyRequest) -> JsonObject:
    return {name: value for name, value in request.query_params.items() if name != "A2A-Version" and value != ""}


async def _frames(dialect: Dialect, stream: Stream) -> AsyncGenerator[bytes]:
    async with aclosing(stream.batches) as batches:
        try:
            async for batch in batches:
                async with aclosing(pieces_of(map(frame_of, batch))) as pieces:
                    async for piece in pieces:
                        yield piece
        except FaultError as error:
            yield frame(to_json(encode_fault(error.fault, old=dialect.version == "0.3")))


async def _answer(
    call: Call, binding: RestGeneration, operate: Operation, params: JsonObject, media: str
) -> Response[Any]:
    # Paths of 0.3 are below `/v1` (its protocol buffer's annotations), those of 1.0 below the base (specification 1.0,
    # 11.3).
    check_version(call, binding.dialect.version)
    dialect = binding.dialect(call.caller.base_url, call.agent.name)
    result: Answer | Stream = await operate(call, dialect, params)
    if isinstance(result, Stream):
        return event_stream(_frames(dialect, result), ping=PING, headers=result.headers)
    # An empty protocol buffer message is an empty object.
    body: Any = {} if result.result is None else result.result
    if result.tasks is not None:
        return await list_response(to_json(body), result.tasks, name="tasks", headers=result.headers, media_type=media)
    return json_response(body, result.headers, media_type=media)


class _Run(Protocol):
    """Type of the function that runs one operation with its params, and returns the response."""

    async def __call__(
        self, request: AnyRequest, agent: str, operate: Operation, params: Mapping[str, Any]
    ) -> Response[Any]: ...


def routes(hub: Hub, lines: FanoutCache) -> Sequence[ControllerRouterHandler]:
    return [handler for binding in (V1_0, V0_3) for handler in _routes(hub, lines, binding)]


def _routes(hub: Hub, lines: FanoutCache, binding: RestGeneration) -> Sequence[ControllerRouterHandler]:
    base = f"/a2a/{{agent:str}}{binding.prefix}"

    async def run(request: AnyRequest, agent: str, operate: Operation, params: Mapping[str, Any]) -> Response[Any]:
        tracer = find_tracer(request)
        if tracer is not None:
            tracer.start_operation(describe(operate, binding.dialect.version, params), {})
        return await _answer(
            make_call(hub, lines, request, agent), binding, operate, dict(params), _media_type(request)
        )

    # 0.2 had no method for the extended card, only a path next to the agent's.
    cards = [f"{base}/extendedAgentCard"] if binding is V1_0 else [f"{base}/card", _CARD_0_2]

    @get(cards)
    async def extended_card(request: AnyRequest, agent: FromPath[str]) -> Response[Any]:
        return await run(request, agent, card.get_extended_card, {})

    return [*_task_routes(base, run), *_config_routes(base, binding, run), extended_card]


def _task_routes(base: str, run: _Run) -> Sequence[ControllerRouterHandler]:

    @post(f"{base}/message:send", status_code=200)
    async def send(request: AnyRequest, agent: FromPath[str]) -> Response[Any]:
        return await run(request, agent, operation.send, await _body(request))

    @post(f"{base}/message:stream", status_code=200)
    async def stream(request: AnyRequest, agent: FromPath[str]) -> Response[Any]:
        return await run(request, agent, operation.stream, await _body(request))

    @get(f"{base}/tasks")
    async def list_tasks(request: AnyRequest, agent: FromPath[str]) -> Response[Any]:
        return await run(request, agent, operation.list_tasks, _query(request))

    # One route for all of these: Litestar cannot route a parameter followed by a literal in one segment.
    @route(f"{base}/tasks/{{rest:str}}", http_method=[HttpMethod.GET, HttpMethod.POST], status_code=200)
    async def task(request: AnyRequest, agent: FromPath[str], rest: FromPath[str]) -> Response[Any]:
        task_id, colon, verb = rest.rpartition(":")
        if not colon:
            if request.method != "GET":
                raise FaultError(FaultCode.METHOD_NOT_ALLOWED, "Use GET to get a task.", allow=["GET"])
            return await run(request, agent, operation.get, {**_query(request), "id": rest})
        if verb == "cancel":
            if request.method != "POST":
                raise FaultError(FaultCode.METHOD_NOT_ALLOWED, "Use POST to cancel a task.", allow=["POST"])
            return await run(request, agent, operation.cancel, {"id": task_id})
        if verb == "subscribe":
            # GET in the protocol buffer, POST in the text of the specification: clients send both.
            return await run(request, agent, operation.subscribe, {"id": task_id})
        raise FaultError(
            FaultCode.NOT_FOUND, f"Unknown operation {verb[:100]!r} on a task: expected cancel or subscribe."
        )

    return [send, stream, list_tasks, task]


def _config_routes(base: str, binding: RestGeneration, run: _Run) -> Sequence[ControllerRouterHandler]:
    @post(f"{base}/tasks/{{task_id:str}}/pushNotificationConfigs", status_code=200)
    async def create_config(request: AnyRequest, agent: FromPath[str], task_id: FromPath[str]) -> Response[Any]:
        body = await _body(request)
        params = {**body, "taskId": task_id} if binding is V1_0 else _config_0_3(body, task_id)
        return await run(request, agent, push.create, params)

    @get(f"{base}/tasks/{{task_id:str}}/pushNotificationConfigs")
    async def list_configs(request: AnyRequest, agent: FromPath[str], task_id: FromPath[str]) -> Response[Any]:
        return await run(request, agent, push.list_configs, {**_query(request), binding.task_of_config: task_id})

    @get(f"{base}/tasks/{{task_id:str}}/pushNotificationConfigs/{{config_id:str}}")
    async def get_config(
        request: AnyRequest, agent: FromPath[str], task_id: FromPath[str], config_id: FromPath[str]
    ) -> Response[Any]:
        params = {binding.task_of_config: task_id, binding.config_id: config_id}
        return await run(request, agent, push.get, params)

    @delete(f"{base}/tasks/{{task_id:str}}/pushNotificationConfigs/{{config_id:str}}", status_code=200)
    async def delete_config(
        request: AnyRequest, agent: FromPath[str], task_id: FromPath[str], config_id: FromPath[str]
    ) -> Response[Any]:
        params = {binding.task_of_config: task_id, binding.config_id: config_id}
        return await run(request, agent, push.delete, params)

    return [create_config, list_configs, get_config, delete_config]


_CARD_0_2: Final = "/a2a/{agent:str}/agent/authenticatedExtendedCard"


def _config_0_3(body: JsonObject, task_id: str) -> JsonObject:
    """Return the params of the method that creates a push notification config, from a body of 0.3 in one of three
    forms.

    The SDKs send `{parent, configId, config: {name, pushNotificationConfig}}`. By the protocol buffer's annotation, the
    body is `config` alone. Some callers send the JSON-RPC params.
    """
    outer = _object(body.get("config")) or body
    config = _object(outer.get("pushNotificationConfig", outer.get("push_notification_config")))
    if config is None:
        raise FaultError(
            FaultCode.INVALID,
            "The body must contain pushNotificationConfig.",
            errors=[{"field": "config.pushNotificationConfig", "description": "Field required"}],
        )
    # `a2a.v1.CreateTaskPushNotificationConfigRequest.config_id`.
    config_id: Any = body.get("configId", body.get("config_id"))
    if config_id and not config.get("id"):
        config = {**config, "id": config_id}
    return {"taskId": task_id, "pushNotificationConfig": config}


def _object(value: Any) -> JsonObject | None:
    return cast("JsonObject", value) if isinstance(value, dict) else None
