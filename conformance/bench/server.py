"""A server of AIEF's Agent Protocol, as the bench calls it: OpenAPI v1, and what the servers in the world make of it.

The answer to a POST is the truth: what servers say of their steps later is often wrong (the Python SDK 1.0.2 answers a
GET of any step with the first one, the JavaScript SDK 1.0.5 a list of steps with 500).
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, Literal, cast

import httpx

from babelgate.conformance.bench.sandbox import safe_path
from babelgate.conformance.bench.suite import Upload

Kind = Literal["unreachable", "protocol", "refused"]

_ANSWER: Final = 32 * 2**20
"""Bytes of a JSON answer."""
_FILE: Final = 64 * 2**20
"""Bytes of one artifact."""
_PAGES: Final = 100
_PAGE: Final = 100
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class ServerError(Exception):
    """An answer that is none. `unreachable`: there was none at all; `refused`: a `status` that is no success;
    `protocol`: what came is not what the protocol says."""

    def __init__(self, kind: Kind, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.status = status


@dataclass(frozen=True, slots=True)
class Step:
    output: str
    is_last: bool
    error: str | None
    """Why the agent failed: `additional_output.error` of a gateway like this project's; the protocol has no word."""
    usage: Mapping[str, Any]
    artifacts: int
    raw: Mapping[str, Any]
    asks: bool | None = None
    """Whether the agent waits for an answer, where the server says so: a gateway like this project's does. The protocol
    has no word for it."""


@dataclass(frozen=True, slots=True)
class Artifact:
    artifact_id: str
    path: str
    """Without a way out of a folder."""


class Server:
    """One agent."""

    def __init__(self, url: str, http: httpx.AsyncClient, headers: Mapping[str, str] = _NOTHING) -> None:
        """`url` = what `/ap/v1` stands behind."""
        self.url = url.rstrip("/")
        self._tasks = f"{self.url}/ap/v1/agent/tasks"
        self._http = http
        self._headers = dict(headers)

    async def create(self, input: str | None, more: Mapping[str, Any]) -> str:
        """The id of a new task."""
        # Always with a body: the JavaScript SDK answers 415 without one, and 400 to a null.
        body = {**({} if input is None else {"input": input}), "additional_input": dict(more)}
        made = await self._json("POST", self._tasks, json=body)
        return _text(made, "task_id", "the task")

    async def upload(self, task_id: str, file: Upload) -> str:
        """The id of the artifact."""
        fields = {} if file.folder is None else {"relative_path": file.folder}
        content = {"file": (file.name, file.data, "application/octet-stream")}
        made = await self._json("POST", f"{self._tasks}/{task_id}/artifacts", data=fields, files=content)
        return _text(made, "artifact_id", "the artifact")

    async def step(self, task_id: str, input: str | None, more: Mapping[str, Any]) -> Step:
        body = {**({} if input is None else {"input": input}), **({"additional_input": dict(more)} if more else {})}
        try:
            return _step(await self._json("POST", f"{self._tasks}/{task_id}/steps", json=body))
        except ServerError as error:
            if error.status != HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            # How both SDKs say that the agent raised: the protocol has no state for it.
            return Step("", is_last=True, error=str(error), usage={}, artifacts=0, raw={})

    async def artifacts(self, task_id: str) -> Sequence[Artifact]:
        """All of them, page by page. The Python SDK answers with a bare list, whatever page is asked for.
        Raises ServerError."""
        found: dict[str, Artifact] = {}
        for page in range(1, _PAGES + 1):
            answer = await self._value(
                "GET", f"{self._tasks}/{task_id}/artifacts", params={"current_page": page, "page_size": _PAGE}
            )
            told = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {"artifacts": answer}
            if not isinstance(told.get("artifacts"), list):
                raise ServerError("protocol", "the list of artifacts is none")
            before = len(found)
            for each in cast("list[Any]", told["artifacts"]):
                artifact = _artifact(each)
                found[artifact.artifact_id] = artifact
            if len(found) == before:
                break  # an empty page, or the same one again
        return tuple(found.values())

    async def download(self, task_id: str, artifact_id: str) -> bytes:
        async with self._answer("GET", f"{self._tasks}/{task_id}/artifacts/{artifact_id}") as response:
            return await _read(response, _FILE)

    async def about(self) -> Mapping[str, Any]:
        """What the server says of itself, as far as it does (the page is of the unreleased v2)."""
        try:
            found = await self._json("GET", f"{self.url}/ap/v2/agent/info")
        except ServerError:
            return {}
        return {key: found[key] for key in ("name", "version", "description") if isinstance(found.get(key), str)}

    async def is_answering(self) -> bool:
        """Whether it answers as this protocol does."""
        try:
            found = await self._value("GET", self._tasks, params={"current_page": 1, "page_size": 1})
        except ServerError:
            return False
        told = cast("dict[str, Any]", found) if isinstance(found, dict) else {"tasks": found}
        return isinstance(told.get("tasks"), list)

    # On the wire

    async def _json(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        found = await self._value(method, url, **more)
        if not isinstance(found, dict):
            raise ServerError("protocol", f"the answer to {method} is no JSON object")
        return cast("dict[str, Any]", found)

    async def _value(self, method: str, url: str, **more: Any) -> Any:
        async with self._answer(method, url, **more) as response:
            raw = await _read(response, _ANSWER)
            try:
                return httpx.Response(200, content=raw).json()
            except (ValueError, RecursionError):
                raise ServerError("protocol", f"the answer to {method} is not JSON") from None

    @asynccontextmanager
    async def _answer(self, method: str, url: str, **more: Any) -> AsyncGenerator[httpx.Response]:
        try:
            async with self._http.stream(method, url, headers=self._headers, **more) as response:
                if not response.is_success:
                    said = (await _read(response, 2**16)).decode(errors="replace")
                    status = response.status_code
                    raise ServerError("refused", f"{status} {_phrase(response)}: {_words(said)}", status)
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise ServerError("unreachable", f"it cannot be reached ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            raise ServerError("unreachable", f"the connection broke ({type(error).__name__})") from error


@asynccontextmanager
async def reach() -> AsyncGenerator[httpx.AsyncClient]:
    """Connections for all servers of a bench. What bounds a step is its task's timeout."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=4.0)
    async with httpx.AsyncClient(timeout=httpx.Timeout(None, connect=10.0), limits=limits) as made:
        yield made


async def _read(response: httpx.Response, limit: int) -> bytes:
    pieces = bytearray()
    async for piece in response.aiter_bytes():
        pieces += piece
        if len(pieces) > limit:
            raise ServerError("protocol", f"an answer is larger than {limit // 2**20} MB")
    return bytes(pieces)


def _phrase(response: httpx.Response) -> str:
    try:
        return HTTPStatus(response.status_code).phrase
    except ValueError:
        return ""


def _words(body: str) -> str:
    """What an error body says: `{"message"}` (OpenAPI v1), `{"error"}` (JavaScript SDK), `{"detail"}`, or text."""
    try:
        told: Any = httpx.Response(200, text=body).json()
    except ValueError:
        told = None
    if isinstance(told, dict):
        object_ = cast("dict[str, Any]", told)
        said = next((object_[key] for key in ("message", "error", "detail") if key in object_), body)
        body = said if isinstance(said, str) else str(said)
    return " ".join(body.split())[:300] or "nothing more is said"


def _text(told: Mapping[str, Any], key: str, what: str) -> str:
    value = told.get(key)
    if not isinstance(value, str) or not value or "/" in value:
        raise ServerError("protocol", f"{what} has no {key}")
    return value


def _step(told: Mapping[str, Any]) -> Step:
    is_last = told.get("is_last", False)
    if not isinstance(is_last, bool):
        raise ServerError("protocol", "is_last of the step is no boolean")
    output = told.get("output")
    more = told.get("additional_output")
    about: dict[str, Any] = cast("dict[str, Any]", more) if isinstance(more, dict) else {}
    usage, artifacts = about.get("usage"), told.get("artifacts")
    return Step(
        output=output if isinstance(output, str) else "",
        is_last=is_last,
        error=_error(about.get("error")),
        usage=cast("dict[str, Any]", usage) if isinstance(usage, dict) else {},
        artifacts=len(cast("list[Any]", artifacts)) if isinstance(artifacts, list) else 0,
        raw=told,
        asks=_asks(is_last, about),
    )


def _asks(is_last: bool, about: Mapping[str, Any]) -> bool | None:
    if about.get("status") in ("input-required", "auth-required"):
        return not is_last
    return False if "babelgate" in about else None


def _error(told: Any) -> str | None:
    if told is None or told is False or told == "":
        return None
    if isinstance(told, dict):
        said = cast("dict[str, Any]", told)
        return str(said.get("message") or said.get("code") or "the agent failed")
    return str(told)


def _artifact(told: Any) -> Artifact:
    if not isinstance(told, dict):
        raise ServerError("protocol", "an artifact is no object")
    each = cast("dict[str, Any]", told)
    folder, name = each.get("relative_path"), each.get("file_name")
    path = safe_path(f"{folder if isinstance(folder, str) else ''}/{name if isinstance(name, str) else ''}")
    return Artifact(_text(each, "artifact_id", "the artifact"), path or "file")
