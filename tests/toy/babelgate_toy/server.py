"""Routes of the toy protocol."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from litestar import Request, Response, get, post
from litestar.types import ControllerRouterHandler
from pydantic import BaseModel

from babelgate.adapters.kit.json import read_json, validate
from babelgate.adapters.kit.server.caller import caller, loss_header, run_headers
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import (
    AnnotationPart,
    Fault,
    FaultCode,
    FaultError,
    Feature,
    Fold,
    Hub,
    Message,
    Principal,
    ReasoningPart,
    Receipt,
    Record,
    RunInput,
    Scope,
    Submission,
    Task,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import Custom, MessageEnded, PartAdded, RunEnded, StepStarted, ToolStarted
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import is_uuid
from babelgate_toy.carries import CARRIES, VERSION

Asked = Request[Any, Any, Any]

_STATUSES = {
    FaultCode.UNAUTHENTICATED: 401,
    FaultCode.FORBIDDEN: 403,
    FaultCode.NOT_FOUND: 404,
    FaultCode.METHOD_NOT_ALLOWED: 405,
    FaultCode.CONFLICT: 409,
    FaultCode.TOO_LARGE: 413,
    FaultCode.QUEUE_FULL: 429,
    FaultCode.LIMITED: 429,
    FaultCode.INTERNAL: 500,
}


class Ask(BaseModel):
    text: str


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = Server(hub)
    return [
        get("/toy")(server.list_agents),
        post("/toy/{agent:str}", status_code=200)(server.run_agent),
        get("/toy/runs/{run_id:str}")(server.get_run),
    ]


def answer_fault(fault: Fault, request: Asked) -> Response[Any]:
    status = _STATUSES.get(fault.code, 422)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    body = {"oops": {"code": str(fault.code), "words": fault.message}}
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def _losses(records: Sequence[Record]) -> Iterator[Loss]:
    for record in records:
        match record.event:
            case Custom():
                yield _loss(Feature.CUSTOM)
            case ToolStarted() | PartAdded(part=ToolCallPart() | ToolResultPart()):
                yield _loss(Feature.TOOL_ACTIVITY)
            case StepStarted():
                yield _loss(Feature.STEP)
            case PartAdded(part=ReasoningPart()):
                yield _loss(Feature.REASONING)
            case PartAdded(part=AnnotationPart()):
                yield _loss(Feature.CITATION)
            case MessageEnded(usage=usage) | RunEnded(usage=usage) if usage:
                yield _loss(Feature.USAGE)
            case _:
                pass


def _loss(feature: Feature) -> Loss:
    return Loss(feature=str(feature), how=CARRIES[feature].how)


class Server(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def list_agents(self, request: Asked) -> Response[Any]:
        infos = self._hub.agents(caller(request).principal)
        agents = [{"name": info.name, "description": info.description} for info in infos]
        return Response({"toy": VERSION, "agents": agents}, media_type="application/json")

    async def run_agent(self, request: Asked) -> Response[Any]:
        who = caller(request)
        info = self._hub.agent(who.principal, request.path_params["agent"])
        body = validate(Ask, await read_json(request))
        messages = (Message.of(body.text, "user"),)
        receipt = await self._hub.submit(
            who.principal,
            Submission(
                agent=info.name,
                protocol="toy",
                version=VERSION,
                thread_id=str(uuid4()),
                input=RunInput(messages=messages, headers=who.headers),
            ),
        )
        async for _ in self._hub.reads.follow(who.principal, Scope(receipt.thread_id, "run", receipt.run_id)):
            pass
        return await self._answer(who.principal, receipt)

    async def get_run(self, request: Asked) -> Response[Any]:
        principal, task_id = caller(request).principal, request.path_params["run_id"]
        if not is_uuid(task_id):
            raise FaultError(FaultCode.NOT_FOUND, "There is no such run.")
        return await self._answer(principal, await self._hub.reads.task(principal, task_id))

    async def _answer(self, principal: Principal, source: Receipt | Task) -> Response[Any]:
        task = await self._hub.reads.task(principal, source.task_id)
        scope = Scope.task(task)
        records = await self._hub.reads.records(principal, scope, task.first_seq - 1)
        fold = Fold(task.thread_id, principal.owner, records)
        messages = fold.messages(task_id=task.task_id)
        texts = [message.text for message in messages if message.role != "user" and message.phase != "progress"]
        losses = [*(loss for run in fold.runs.values() for loss in run.loss), *_losses(records)]
        body = {
            "id": task.task_id,
            "state": str(task.state),
            "text": "".join(texts),
            "failure": None if task.fault is None else task.fault.message,
        }
        return Response(body, media_type="application/json", headers={**run_headers(source), **loss_header(losses)})
