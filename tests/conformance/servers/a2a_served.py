"""How the scripted agents of A2A are served in 0.3 and in 1.0: keys, the card, JSON-RPC and errors."""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, cast

from babelgate.conformance.probe import ProbeOptions
from tests.conformance.servers.a2a_agent import Agent, Refused, triggers_of_the_agent
from tests.conformance.servers.kit import TRACE, Answer, Request, triggers

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
"""The code of JSON-RPC in both versions; the status of HTTP and its name in 1.0."""
OPTIONS: Final = ProbeOptions(
    headers={"X-Api-Key": "alice"},
    other_headers={"X-Api-Key": "bob"},
    triggers=triggers(**triggers_of_the_agent()),
    timeout=8.0,
)


class Served(Agent):
    who_are_you: Any
    """The answer to a caller without a valid key."""
    no_extended_card: str
    """The error of an agent that declares none."""

    async def called(self, request: Request, method: str, params: dict[str, Any], owner: str, id: Any) -> Any:
        """The result of a call by JSON-RPC, or a stream. Raises Refused."""
        raise NotImplementedError

    async def called_by_rest(self, request: Request, path: str, owner: str) -> Any:
        """The body of an answer, or a stream. Raises Refused."""
        raise NotImplementedError

    def made_card(self, base: str) -> dict[str, Any]:
        raise NotImplementedError

    def rpc_details(self, reason: str) -> dict[str, Any]:
        return {}

    def rest_error(self, reason: str) -> Answer:
        raise NotImplementedError

    # Keys

    def _owner(self, request: Request) -> str:
        """Return the caller of a request. Raises PermissionError."""
        key = request.headers.get("x-api-key", "")
        if key in ("alice", "bob"):
            return key
        is_for_card = b"ExtendedCard" in request.body or request.path.endswith("Card")
        if self.does("strangers come in") or (is_for_card and self.does("strangers see everything")):
            return "alice"
        raise PermissionError

    def _stranger(self) -> Answer:
        challenge = {} if self.does("no challenge") else {"www-authenticate": 'ApiKey realm="agent"'}
        return Answer(401, self.who_are_you, challenge)

    # Bindings

    async def rpc(self, request: Request) -> Answer:
        try:
            owner = self._owner(request)
        except PermissionError:
            return self._stranger()
        try:
            body = request.json
        except ValueError:
            reason = "INTERNAL" if self.does("broken JSON is a failure") else "PARSE_ERROR"
            return self._rpc_error(0 if self.does("broken JSON has an id") else None, reason)
        id = body.get("id")
        try:
            is_odd = body.get("jsonrpc") != "2.0"
            self.raise_unless("jsonrpc is not looked at", Refused("INVALID_REQUEST"), when=is_odd)
            self.raise_unless("the method is not looked at", Refused("INVALID_REQUEST"), when="method" not in body)
            params = body.get("params", {})
            if not isinstance(params, dict):
                raise Refused("INTERNAL" if self.does("parameters may be anything") else "INVALID_PARAMS")
            result = await self.called(request, str(body.get("method")), cast("dict[str, Any]", params), owner, id)
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
        error = {"code": ERRORS[reason][0], "message": self.said_of(reason), **self.rpc_details(reason)}
        self.drop_if("errors without a message", error, "message")
        return Answer(body={"jsonrpc": "2.0", "id": id, "error": error})

    def said_of(self, reason: str) -> str:
        if reason == "INVALID_PARAMS" and self.does("stack traces for all"):
            return TRACE
        return reason.replace("_", " ").capitalize()

    async def rest(self, request: Request, path: str) -> Answer:
        try:
            owner = self._owner(request)
        except PermissionError:
            return self._stranger()
        try:
            result = await self.called_by_rest(request, path, owner)
        except Refused as error:
            return self.rest_error(str(error))
        if isinstance(result, Answer):
            return result
        kind = "text/json" if self.does("REST is text") else "application/json"
        return Answer(body=result, headers={"content-type": kind})

    def rest_answer(self, reason: str, status: int, body: Any) -> Answer:
        """An error of REST."""
        kind = "text/plain" if self.does("REST errors are text") else "application/json"
        return Answer(self.rest_status(reason, status), json.dumps(body), {"content-type": kind})

    def rest_status(self, reason: str, status: int) -> int:
        if reason == "TASK_NOT_FOUND" and self.does("not found is a bad request"):
            return 400
        if reason == "TASK_NOT_CANCELABLE" and self.does("not cancelable is a failure"):
            return 500
        return status

    # The card

    def card(self, request: Request) -> Answer:
        if "x-api-key" not in request.headers and self.does("the card needs a key"):
            return self._stranger()
        headers = {
            "content-type": "text/plain" if self.does("the card is plain text") else "application/json",
            "cache-control": "" if self.does("the card is not to be kept") else "max-age=60",
            "etag": "" if self.does("the card has no ETag") else '"1"',
        }
        if request.headers.get("if-none-match") == '"1"' and not self.does("the card is sent again"):
            return Answer(304, headers=headers)
        return Answer(body=self.made_card(request.base), headers=headers)

    def extended_card(self) -> dict[str, Any]:
        self.raise_unless("bare: an extended card anyway", Refused(self.no_extended_card), when=self.is_bare)
        self.raise_if("no extended card after all", Refused("EXTENDED_AGENT_CARD_NOT_CONFIGURED"))
        return self.made_card("http://127.0.0.1")

    def skills(self) -> list[dict[str, Any]]:
        skill: dict[str, Any] = {"id": "one", "name": "One", "description": "Does one thing.", "tags": ["demo"]}
        self.drop_if("a skill without tags", skill, "tags")
        return [skill, {**skill, "id": "one" if self.does("two skills have one id") else "two"}]

    def signature(self) -> dict[str, Any]:
        header = {"alg": "ES256", "typ": "JOSE", "kid": "1"}
        self.drop_if("a signature without a key", header, "kid")
        protected = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
        return {"protected": protected, "signature": "c2ln====" if self.does("a signature with padding") else "c2ln"}
