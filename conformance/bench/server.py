"""Client for a server of AIEF's Agent Protocol (OpenAPI v1), including the deviations of existing servers.

The client relies on the response to a POST, because what servers report about steps later is often wrong. The Python
SDK 1.0.2 answers a GET of any step with the first one. The JavaScript SDK 1.0.5 answers a list of steps with 500.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, Literal, cast

import httpx

from babelgate.conformance.bench.sandbox import safe_path
from babelgate.conformance.bench.suite import TaskUpload
from babelgate.conformance.wire.tls import open_context

Kind = Literal["unreachable", "protocol", "refused"]

_MAX_JSON: Final = 32 * 2**20
"""Maximum size of a JSON response, in bytes. Chosen."""
_MAX_FILE: Final = 64 * 2**20
"""Maximum size of one downloaded artifact, in bytes. Chosen."""
_MAX_PAGES: Final = 100
_PAGE_SIZE: Final = 100
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class ServerError(Exception):
    """Error of an agent's server. `kind` has one of three values:

    - `unreachable`: there was no response.
    - `refused`: the response has an error status, which `status` holds.
    - `protocol`: the response does not match the protocol.
    """

    def __init__(self, kind: Kind, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.status = status


@dataclass(frozen=True, slots=True)
class StepResult:
    output: str
    is_last: bool
    error: str | None
    """Error message of an agent that failed, or None. A gateway like Babelgate reports it in `additional_output.error`;
    the protocol has no field for it."""
    usage: Mapping[str, Any]
    artifacts: int
    raw: Mapping[str, Any]
    asks: bool | None = None
    """True if the agent waits for an answer, False if it does not, None if the server does not report it. A gateway
    like Babelgate reports it in `additional_output`; the protocol has no field for it."""


@dataclass(frozen=True, slots=True)
class ListedArtifact:
    artifact_id: str
    path: str
    """Path of the artifact relative to the folder of the task, without `..`."""


class AgentClient:
    """HTTP client for one agent's server: one method for each operation of the protocol."""

    def __init__(self, url: str, http: httpx.AsyncClient, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        """Create a client. `url` is the part of the agent's address before `/ap/v1`."""
        self.url = url.rstrip("/")
        self._tasks = f"{self.url}/ap/v1/agent/tasks"
        self._http = http
        self._headers = dict(headers)

    async def create(self, input: str | None, more: Mapping[str, Any]) -> str:
        """Create a task with the text `input`, unless it is None, and the additional input `more`. Return its id.
        Raises ServerError if the server cannot be reached, refuses the request, or violates the protocol."""
        # The body is never omitted: the JavaScript SDK answers 415 without one, and 400 to a null.
        body = {**({} if input is None else {"input": input}), "additional_input": dict(more)}
        task = await self._json("POST", self._tasks, json=body)
        return _text(task, "task_id", "the task")

    async def upload(self, task_id: str, file: TaskUpload) -> str:
        """Upload a file for a task and return the id of the artifact. Raises ServerError if the server cannot be
        reached, refuses the request, or violates the protocol."""
        fields = {} if file.folder is None else {"relative_path": file.folder}
        content = {"file": (file.name, file.data, "application/octet-stream")}
        artifact = await self._json("POST", f"{self._tasks}/{task_id}/artifacts", data=fields, files=content)
        return _text(artifact, "artifact_id", "the artifact")

    async def step(self, task_id: str, input: str | None, more: Mapping[str, Any]) -> StepResult:
        body = {**({} if input is None else {"input": input}), **({"additional_input": dict(more)} if more else {})}
        try:
            return _step(await self._json("POST", f"{self._tasks}/{task_id}/steps", json=body))
        except ServerError as error:
            if error.status != HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            # Both SDKs answer 500 if the agent raised an exception: the protocol has no state for it.
            return StepResult("", is_last=True, error=str(error), usage={}, artifacts=0, raw={})

    async def artifacts(self, task_id: str) -> Sequence[ListedArtifact]:
        """Return all artifacts of a task, read page by page. Raises ServerError if the server cannot be reached,
        refuses the request, or violates the protocol.

        The Python SDK answers every page with the same complete list, so reading stops at a page without new artifacts.
        """
        found: dict[str, ListedArtifact] = {}
        for page in range(1, _MAX_PAGES + 1):
            answer = await self._value(
                "GET", f"{self._tasks}/{task_id}/artifacts", params={"current_page": page, "page_size": _PAGE_SIZE}
            )
            listing = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {"artifacts": answer}
            if not isinstance(listing.get("artifacts"), list):
                raise ServerError("protocol", "the list of artifacts is none")
            before = len(found)
            for each in cast("list[Any]", listing["artifacts"]):
                artifact = _artifact(each)
                found[artifact.artifact_id] = artifact
            if len(found) == before:
                break  # The page is empty, or the same one again.
        return tuple(found.values())

    async def download(self, task_id: str, artifact_id: str) -> bytes:
        async with self._answer("GET", f"{self._tasks}/{task_id}/artifacts/{artifact_id}") as response:
            return await _read(response, _MAX_FILE)

    async def about(self) -> Mapping[str, Any]:
        """Return the name, version and description from `/ap/v2/agent/info` of the unreleased v2, as far as the server
        has them. Return an empty mapping if there is no such page."""
        try:
            found = await self._json("GET", f"{self.url}/ap/v2/agent/info")
        except ServerError:
            return {}
        return {key: found[key] for key in ("name", "version", "description") if isinstance(found.get(key), str)}

    async def is_answering(self) -> bool:
        """Return True if the server speaks this protocol: it answers a list of tasks."""
        try:
            found = await self._value("GET", self._tasks, params={"current_page": 1, "page_size": 1})
        except ServerError:
            return False
        listing = cast("dict[str, Any]", found) if isinstance(found, dict) else {"tasks": found}
        return isinstance(listing.get("tasks"), list)

    # HTTP requests

    async def _json(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        found = await self._value(method, url, **more)
        if not isinstance(found, dict):
            raise ServerError("protocol", f"the answer to {method} is no JSON object")
        return cast("dict[str, Any]", found)

    async def _value(self, method: str, url: str, **more: Any) -> Any:
        async with self._answer(method, url, **more) as response:
            raw = await _read(response, _MAX_JSON)
            try:
                return httpx.Response(200, content=raw).json()
            except (ValueError, RecursionError):
                raise ServerError("protocol", f"the answer to {method} is not JSON") from None

    @asynccontextmanager
    async def _answer(self, method: str, url: str, **more: Any) -> AsyncGenerator[httpx.Response]:
        try:
            async with self._http.stream(method, url, headers=self._headers, **more) as response:
                if not response.is_success:
                    body = (await _read(response, 2**16)).decode(errors="replace")
                    status = response.status_code
                    raise ServerError("refused", f"{status} {_phrase(response)}: {_words(body)}", status)
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise ServerError("unreachable", f"it cannot be reached ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            raise ServerError("unreachable", f"the connection broke ({type(error).__name__})") from error


@asynccontextmanager
async def reach() -> AsyncGenerator[httpx.AsyncClient]:
    """Yield an HTTP client for all servers of a benchmark. It has no read timeout: the timeout of a task limits its
    steps."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=4.0)
    timeout = httpx.Timeout(None, connect=10.0)
    async with httpx.AsyncClient(timeout=timeout, limits=limits, verify=open_context()) as client:
        yield client


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
    """Return the message in an error body: `{"message"}` (OpenAPI v1), `{"error"}` (JavaScript SDK), `{"detail"}`, or
    text."""
    try:
        value: Any = httpx.Response(200, text=body).json()
    except ValueError:
        value = None
    if isinstance(value, dict):
        object_ = cast("dict[str, Any]", value)
        message = next((object_[key] for key in ("message", "error", "detail") if key in object_), body)
        body = message if isinstance(message, str) else str(message)
    return " ".join(body.split())[:300] or "the response has no text"


def _text(members: Mapping[str, Any], key: str, what: str) -> str:
    text = members.get(key)
    if not isinstance(text, str) or not text or "/" in text:
        raise ServerError("protocol", f"{what} has no {key}")
    return text


def _step(step: Mapping[str, Any]) -> StepResult:
    is_last = step.get("is_last", False)
    if not isinstance(is_last, bool):
        raise ServerError("protocol", "is_last of the step is no boolean")
    output = step.get("output")
    more = step.get("additional_output")
    about: dict[str, Any] = cast("dict[str, Any]", more) if isinstance(more, dict) else {}
    usage, artifacts = about.get("usage"), step.get("artifacts")
    return StepResult(
        output=output if isinstance(output, str) else "",
        is_last=is_last,
        error=_error(about.get("error")),
        usage=cast("dict[str, Any]", usage) if isinstance(usage, dict) else {},
        artifacts=len(cast("list[Any]", artifacts)) if isinstance(artifacts, list) else 0,
        raw=step,
        asks=_asks(is_last, about),
    )


def _asks(is_last: bool, about: Mapping[str, Any]) -> bool | None:
    if about.get("status") in ("input-required", "auth-required"):
        return not is_last
    return False if "babelgate" in about else None


def _error(error: Any) -> str | None:
    if error is None or error is False or error == "":
        return None
    if isinstance(error, dict):
        members = cast("dict[str, Any]", error)
        return str(members.get("message") or members.get("code") or "the agent failed")
    return str(error)


def _artifact(value: Any) -> ListedArtifact:
    if not isinstance(value, dict):
        raise ServerError("protocol", "an artifact is no object")
    each = cast("dict[str, Any]", value)
    folder, name = each.get("relative_path"), each.get("file_name")
    path = safe_path(f"{folder if isinstance(folder, str) else ''}/{name if isinstance(name, str) else ''}")
    return ListedArtifact(_text(each, "artifact_id", "the artifact"), path or "file")
