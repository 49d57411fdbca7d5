"""`babelgate run --as a2a`: a client of A2A 1.0, JSON-RPC, streaming."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, cast
from uuid import uuid4

import httpx

from adapters._sse import read_frames
from canonical import FaultError
from canonical.value import Json, JsonObject
from gateway.cli.speech import ABSENT, Asked, Failed, Heard, Noted, Said, bearer

__all__ = ("Line",)

_TIMEOUT: Final = httpx.Timeout(connect=5, read=None, write=60, pool=None)
_PAUSED: Final = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})
_FAILED: Final = {
    "TASK_STATE_FAILED": "the agent failed",
    "TASK_STATE_CANCELED": "the run was cancelled",
    "TASK_STATE_REJECTED": "the agent refused",
}


class Line:
    def __init__(self, url: str, agent: str, key: str | None) -> None:
        headers = {**bearer(key), "A2A-Version": "1.0", "Accept": "text/event-stream, application/json"}
        self._http = httpx.AsyncClient(headers=headers, timeout=_TIMEOUT)
        self._url = f"{url}/a2a/{agent}"
        self._ids: dict[str, str] = {}
        """`taskId` and `contextId`, once they are known."""
        self._status: Mapping[str, Any] = {}

    async def aclose(self) -> None:
        await self._http.aclose()

    def send(self, text: str) -> AsyncGenerator[Heard]:
        return self._heard([{"text": text}])

    def answer(self, answers: Sequence[tuple[Asked, Json]]) -> AsyncGenerator[Heard]:
        if len(answers) == 1 and isinstance(text := answers[0][1], str):
            return self._heard([{"text": text}])
        resume = [{"id": asked.id, "value": value} for asked, value in answers]
        return self._heard([{"data": {"resume": resume}}])

    async def _heard(self, parts: Sequence[JsonObject]) -> AsyncGenerator[Heard]:
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": parts, **self._ids}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
        try:
            async with aclosing(self._results(call)) as results:
                async for result in results:
                    for heard in self._read(result):
                        yield heard
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL) as error:
            raise Failed(ABSENT) from error
        except httpx.HTTPError as error:
            raise Failed(f"the connection to the gateway broke ({type(error).__name__})") from error
        except (FaultError, ValueError, KeyError, TypeError) as error:
            raise Failed(f"the answer is not A2A 1.0: {error}") from error
        for asked in self._stopped():
            yield asked

    async def _results(self, call: JsonObject) -> AsyncGenerator[JsonObject]:
        async with self._http.stream("POST", self._url, json=call) as response:
            if "text/event-stream" in response.headers.get("content-type", ""):
                async with aclosing(read_frames(response)) as frames:
                    async for frame in frames:
                        yield _result(json.loads(frame.data))
                return
            raw = await response.aread()
            try:
                yield _result(json.loads(raw))
            except (ValueError, TypeError):
                raise Failed(f"the gateway answered {response.status_code}") from None

    def _read(self, result: JsonObject) -> Sequence[Heard]:
        if "task" in result:
            task = result["task"]
            self._ids = {"taskId": task["id"], "contextId": task["contextId"]}
            self._status = task["status"]
            return ()
        if "statusUpdate" in result:
            self._status = result["statusUpdate"]["status"]
            said = _text(self._status)
            working = self._status["state"] == "TASK_STATE_WORKING"
            return (Noted(said),) if working and said else ()
        if "artifactUpdate" in result:
            artifact = result["artifactUpdate"]["artifact"]
            return [_part(part, artifact.get("name")) for part in artifact["parts"]]
        return [_part(part, None) for part in result.get("message", {}).get("parts", ())]

    def _stopped(self) -> Sequence[Asked]:
        """The questions, if that is why the stream ended."""
        state = self._status.get("state", "")
        if state in _PAUSED:
            return _questions(self._status)
        if state in _FAILED:
            raise Failed(_text(self._status) or _FAILED[state])
        if state != "TASK_STATE_COMPLETED":
            raise Failed("the stream ended while the agent was still at work")
        return ()


def _result(envelope: JsonObject) -> JsonObject:
    error: JsonObject | None = envelope.get("error")
    if error is not None:
        raise Failed(str(error["message"]))
    return envelope["result"]


def _part(part: JsonObject, name: str | None) -> Heard:
    if "text" in part:
        return Said(part["text"])
    if "data" in part:
        return Said(json.dumps(part["data"], ensure_ascii=False))
    return Noted(f"file {part.get('filename') or name or ''}")


def _parts(status: Mapping[str, Any]) -> Sequence[JsonObject]:
    message: JsonObject = status.get("message") or {}
    return message.get("parts", ())


def _text(status: Mapping[str, Any]) -> str:
    return "".join(part.get("text", "") for part in _parts(status))


def _questions(status: Mapping[str, Any]) -> Sequence[Asked]:
    """Each question is some text and then a data part with its id, by which it is answered."""
    asked: list[Asked] = []
    text = ""
    for part in _parts(status):
        data: Any = part.get("data")
        if isinstance(data, dict) and "id" in data:
            about = cast("JsonObject", data)
            asked.append(Asked(str(about["id"]), text, about.get("schema")))
            text = ""
        else:
            text += part.get("text", "")
    return asked or [Asked("", text)]
