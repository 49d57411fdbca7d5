"""Base of the scripted A2A servers of both versions: keys, agent card, JSON-RPC and errors."""

import base64
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, cast

from babelgate.conformance.probe import ProbeOptions
from tests.conformance.servers.a2a_agent import Agent, Refused, agent_triggers
from tests.conformance.servers.kit import TRACE, Answer, Request, Violation, sse, triggers

ERRORS: Final[Mapping[str, tuple[int, int, str]]] = {
    "PARSE_ERROR": (-32700, 400, "INVALID_ARGUMENT"),
    "INVALID_REQUEST": (-32600, 400, "INVALID_ARGUMENT"),
    "METHOD_NOT_FOUND": (-32601, 404, "NOT_FOUND"),
    "INVALID_PARAMS": (-32602, 400, "INVALID_ARGUMENT"),
    "INTERNAL": (-32603, 500, "INTERNAL"),
    "TASK_NOT_FOUND": (-32001, 404, "NOT_FOUND"),
    "TASK_NOT_CANCELABLE": (-32002, 400, "FAILED_PRECONDITION"),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": (-32003, 400, "FAILED_PRECONDITION"),
    "UNSUPPORTED_OPERATION": (-32004, 400, "FAILED_PRECONDITION"),
    "CONTENT_TYPE_NOT_SUPPORTED": (-32005, 400, "INVALID_ARGUMENT"),
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": (-32007, 400, "FAILED_PRECONDITION"),
    "EXTENSION_SUPPORT_REQUIRED": (-32008, 400, "FAILED_PRECONDITION"),
    "VERSION_NOT_SUPPORTED": (-32009, 400, "FAILED_PRECONDITION"),
}
"""JSON-RPC code in both versions, and the HTTP status and its name in 1.0, by the reason of an error."""
OPTIONS: Final = ProbeOptions(
    headers={"X-Api-Key": "alice"},
    other_headers={"X-Api-Key": "bob"},
    triggers=triggers(**agent_triggers()),
    timeout=8.0,
)


class Served(Agent):
    unauthenticated_body: Any
    """Body of the answer to a caller without a valid key."""
    extended_card_error: str
    """Reason of the error of an agent that declares no extended card."""
    listed: Sequence[Violation]
    """Violations of the version."""
    rest_only: tuple[str, ...]
    """Prefixes of requirements that need REST or both bindings. Other violations are tested in JSON-RPC alone."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        breaks = next((each.breaks for each in self.listed if each.name == violation), "")
        self.has_rest = not breaks or breaks.startswith(self.rest_only)

    async def call_rpc(self, request: Request, method: str, params: dict[str, Any], owner: str, id: Any) -> Any:
        """Return the result of a JSON-RPC call, or an answer with a stream. Raises Refused."""
        raise NotImplementedError

    async def call_rest(self, request: Request, path: str, owner: str) -> Any:
        """Return the body of the answer to a REST call, or an answer with a stream. Raises Refused."""
        raise NotImplementedError

    def rpc_event(self, event: dict[str, Any]) -> Any:
        """Return an event of a stream in the form of JSON-RPC."""
        return event

    def rest_event(self, event: dict[str, Any]) -> Any:
        """Return an event of a stream in the form of REST."""
        return event

    def build_card(self, base: str) -> dict[str, Any]:
        raise NotImplementedError

    def rpc_details(self, reason: str) -> dict[str, Any]:
        return {}

    def rest_error(self, reason: str) -> Answer:
        raise NotImplementedError

    # Keys

    def owner_of(self, request: Request) -> str:
        """Return the caller of a request. Raises PermissionError."""
        key = request.headers.get("x-api-key", "")
        if key in ("alice", "bob"):
            return key
        is_for_card = b"ExtendedCard" in request.body or request.path.endswith("Card")
        if self.does("anonymous callers are accepted") or (
            is_for_card and self.does("anonymous callers see the extended card")
        ):
            return "alice"
        raise PermissionError

    def _unauthenticated(self) -> Answer:
        challenge = {} if self.does("no challenge") else {"www-authenticate": 'ApiKey realm="agent"'}
        return Answer(401, self.unauthenticated_body, challenge)

    # Bindings

    async def rpc(self, request: Request) -> Answer:
        try:
            owner = self.owner_of(request)
        except PermissionError:
            return self._unauthenticated()
        try:
            body = request.json
        except ValueError:
            reason = "INTERNAL" if self.does("broken JSON is a failure") else "PARSE_ERROR"
            return self._rpc_error(0 if self.does("broken JSON has an id") else None, reason)
        id = body.get("id")
        try:
            is_odd = body.get("jsonrpc") != "2.0"
            self.raise_unless("jsonrpc is ignored", Refused("INVALID_REQUEST"), when=is_odd)
            self.raise_unless("the method is ignored", Refused("INVALID_REQUEST"), when="method" not in body)
            params = body.get("params", {})
            if not isinstance(params, dict):
                raise Refused("INTERNAL" if self.does("parameters of any type are accepted") else "INVALID_PARAMS")
            result = await self.call_rpc(request, str(body.get("method")), cast("dict[str, Any]", params), owner, id)
        except Refused as error:
            return self._rpc_error(id, str(error))
        if isinstance(result, Answer):
            return result
        envelope = {"jsonrpc": "2.0", "id": str(id) if self.does("ids become texts") else id, "result": result}
        self.drop_if("results without jsonrpc", envelope, "jsonrpc")
        kind = "text/plain" if self.does("JSON-RPC is text") else "application/json"
        return Answer(body=envelope, headers={"content-type": kind})

    def _rpc_error(self, id: Any, reason: str) -> Answer:
        id = str(id) if id is not None and self.does("ids become texts") else id
        error = {"code": ERRORS[reason][0], "message": self.error_text(reason), **self.rpc_details(reason)}
        self.drop_if("errors without a message", error, "message")
        return Answer(body={"jsonrpc": "2.0", "id": id, "error": error})

    def error_text(self, reason: str) -> str:
        if reason == "INVALID_PARAMS" and self.does("errors show a stack trace"):
            return TRACE
        return reason.replace("_", " ").capitalize()

    async def rest(self, request: Request, path: str) -> Answer:
        try:
            owner = self.owner_of(request)
        except PermissionError:
            return self._unauthenticated()
        try:
            result = await self.call_rest(request, path, owner)
        except Refused as error:
            return self.rest_error(str(error))
        if isinstance(result, Answer):
            return result
        kind = "text/json" if self.does("REST is text") else "application/json"
        return Answer(body=result, headers={"content-type": kind})

    def rest_answer(self, reason: str, status: int, body: Any) -> Answer:
        kind = "text/plain" if self.does("REST errors are text") else "application/json"
        return Answer(self.rest_status(reason, status), json.dumps(body), {"content-type": kind})

    def rest_status(self, reason: str, status: int) -> int:
        if reason == "TASK_NOT_FOUND" and self.does("not found is a bad request"):
            return 400
        if reason == "TASK_NOT_CANCELABLE" and self.does("not cancelable is a failure"):
            return 500
        return status

    def rest_body(self, request: Request) -> dict[str, Any]:
        """Return the body of a REST call. Raises Refused."""
        try:
            return request.json
        except ValueError:
            raise Refused("INTERNAL" if self.does("broken JSON is a failure of REST") else "PARSE_ERROR") from None

    def unknown_method(self) -> Refused:
        return Refused("INVALID_PARAMS" if self.does("unknown methods have parameters") else "METHOD_NOT_FOUND")

    def unknown_path(self) -> Refused:
        return Refused("INVALID_REQUEST" if self.does("unknown paths are bad requests") else "METHOD_NOT_FOUND")

    # Streams

    def rpc_stream(self, events: AsyncGenerator[dict[str, Any]], id: Any) -> Answer:
        async def encode() -> AsyncGenerator[bytes]:
            number = "1" if self.does("events with another id") else id
            async with aclosing(events):
                async for event in events:
                    yield sse({"jsonrpc": "2.0", "id": number, "result": self.rpc_event(event)})

        return self._stream_answer(encode())

    def rest_stream(self, events: AsyncGenerator[dict[str, Any]]) -> Answer:
        async def encode() -> AsyncGenerator[bytes]:
            async with aclosing(events):
                async for event in events:
                    bare = self.rest_event(event)
                    is_wrapped = self.does("REST events have an envelope")
                    yield sse({"jsonrpc": "2.0", "id": 1, "result": bare, **bare} if is_wrapped else bare)

        return self._stream_answer(encode())

    def _stream_answer(self, chunks: AsyncGenerator[bytes]) -> Answer:
        kind = "application/octet-stream" if self.does("streams are bytes") else "text/event-stream"
        return Answer(stream=chunks, headers={"content-type": kind})

    # The card

    def card(self, request: Request) -> Answer:
        if "x-api-key" not in request.headers and self.does("the card needs a key"):
            return self._unauthenticated()
        headers = {
            "content-type": "text/plain" if self.does("the card is plain text") else "application/json",
            "cache-control": "" if self.does("the card has no cache-control") else "max-age=60",
            "etag": "" if self.does("the card has no ETag") else '"1"',
        }
        if request.headers.get("if-none-match") == '"1"' and not self.does("the card is sent again"):
            return Answer(304, headers=headers)
        return Answer(body=self.build_card(request.base), headers=headers)

    def extended_card(self) -> dict[str, Any]:
        self.raise_unless("bare: an extended card anyway", Refused(self.extended_card_error), when=self.is_bare)
        self.raise_if("the extended card is missing", Refused("EXTENDED_AGENT_CARD_NOT_CONFIGURED"))
        return self.build_card("http://127.0.0.1")

    def common_card(self) -> dict[str, Any]:
        """Return the members that are equal in both versions."""
        card: dict[str, Any] = {
            "name": "Scripted",
            "description": "An agent that conforms to the protocol.",
            "version": "1",
            "provider": {"url": "https://example.com", "organization": "Example"},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": self._skills(),
            "signatures": [self._signature()],
        }
        self.drop_if("a card without a version", card, "version")
        return card

    def _skills(self) -> list[dict[str, Any]]:
        skill: dict[str, Any] = {"id": "one", "name": "One", "description": "Does one thing.", "tags": ["demo"]}
        self.drop_if("a skill without tags", skill, "tags")
        return [skill, {**skill, "id": "one" if self.does("two skills have one id") else "two"}]

    def _signature(self) -> dict[str, Any]:
        header = {"alg": "ES256", "typ": "JOSE", "kid": "1"}
        self.drop_if("a signature without a key", header, "kid")
        protected = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
        return {"protected": protected, "signature": "c2ln====" if self.does("a signature with padding") else "c2ln"}
