"""Client of an agent on a toy server. The URL is that of the server's `/toy`."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel
from pydantic_core import to_json

from babelgate.adapters.kit.client.answers import LISTING_LIMIT
from babelgate.adapters.kit.client.calls import Calls
from babelgate.adapters.kit.json import validate
from babelgate.canonical import AgentInfo, Event, Fault, FaultCode, FaultError, Invocation, TextPart
from babelgate.canonical.event import MessageEnded, MessageStarted, PartAdded, UpstreamBound
from babelgate.canonical.value import Json

M = TypeVar("M", bound=BaseModel)

_JSON = {"Accept": "application/json"}


class Answer(BaseModel):
    id: str
    state: str
    text: str
    failure: str | None = None


class Listed(BaseModel):
    name: str
    description: str = ""


class Listing(BaseModel):
    toy: str
    agents: list[Listed]


class Client:
    def __init__(
        self,
        url: str,
        agent: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._http = _HttpClient(url, headers=headers, timeout=timeout, http=http)
        self._path = f"/{quote(agent, safe='')}"

    async def aclose(self) -> None:
        await self._http.aclose()

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        async with self._http.request("POST", self._path, _JSON, body=to_json({"text": call.text})) as response:
            answer = _read(Answer, await self._http.json(response))
        yield UpstreamBound(protocol="toy", ids={"run": answer.id})
        if answer.text:
            for event in (MessageStarted(), PartAdded(part=TextPart(text=answer.text)), MessageEnded()):
                yield event
        if answer.state != "completed":
            raise FaultError(FaultCode.AGENT_FAILED, answer.failure or f"The agent's run is {answer.state}")


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    upstream = _HttpClient(url, headers=headers, timeout=10.0, http=http)
    async with upstream.request("GET", "", _JSON) as response:
        listing = _read(Listing, await upstream.json(response, LISTING_LIMIT))
    return [AgentInfo(name=each.name, description=each.description) for each in listing.agents]


class _HttpClient(Calls):
    def decode_error_body(self, status: int, answer: Any) -> Fault:
        fault = super().decode_error_body(status, answer)
        with suppress(KeyError, TypeError):
            return fault.replace(message=f"{fault.message}: {answer['oops']['words']}")
        return fault


def _read(model: type[M], answer: Json) -> M:
    try:
        return validate(model, answer)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, "The server does not answer as Toy does") from error
