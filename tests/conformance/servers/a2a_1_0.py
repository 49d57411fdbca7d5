"""A scripted agent of A2A 1.0: JSON-RPC at its own URL, REST below it."""

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, cast
from urllib.parse import unquote

from babelgate.conformance.probe import Options
from tests.conformance.servers import a2a_agent
from tests.conformance.servers.a2a_1_0_violations import VIOLATIONS
from tests.conformance.servers.a2a_agent import Refused, triggers_of_the_agent
from tests.conformance.servers.a2a_lists import list_tasks
from tests.conformance.servers.kit import Answer, Request, Server, sse, triggers

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
REQUIRED: Final = "https://example.com/extensions/required"
TRACE: Final = 'Traceback (most recent call last):\n  File "agent.py", line 7, in send'


_BOTH: Final = ("rest.", "binding.", "card.", "extended.", "form.rest-error", "version.query", "security.paths")
"""Requirements that are shown by REST, or by both bindings; whatever else goes wrong is shown in one of them."""


class Agent(a2a_agent.Agent):
    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        breaks = next((each.breaks for each in VIOLATIONS if each.name == violation), "")
        self.has_rest = not breaks or breaks.startswith(_BOTH)

    async def handle(self, request: Request) -> Answer:
        path = request.path.removeprefix("/agent")
        if path == "/.well-known/agent-card.json" and not self.does("the card lies elsewhere"):
            return self._card(request)
        if not request.path.startswith("/agent") or path.startswith("/.well-known"):
            return Answer(404, {"error": {"code": 404, "status": "NOT_FOUND", "message": "nothing here"}})
        if path in ("", "/") and request.method == "POST":
            return await self._rpc(request)
        return await self._rest(request, path)

    def _owner(self, request: Request) -> str:
        """Who asks. Raises PermissionError."""
        key = request.headers.get("x-api-key", "")
        if key in ("alice", "bob"):
            return key
        if self.does("strangers come in") or (request.path.endswith("Card") and self.does("strangers see everything")):
            return "alice"
        raise PermissionError

    def _stranger(self) -> Answer:
        challenge = {} if self.does("no challenge") else {"www-authenticate": 'ApiKey realm="agent"'}
        body = {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "Who are you?"}}
        return Answer(401, body, challenge)

    def _check_headers(self, request: Request) -> None:
        """Version and extensions. Raises Refused."""
        version = request.headers.get("a2a-version")
        if version is None and not self.does("no version in the query"):
            version = request.query.get("A2A-Version")
        if not version:
            if not self.does("no version is the newest"):
                raise Refused("VERSION_NOT_SUPPORTED")
        elif version != "1.0":
            is_patched = version.startswith("1.0.") and not self.does("patches matter")
            if not is_patched and not self.does("any version will do"):
                raise Refused("VERSION_NOT_SUPPORTED")
        asked = [each.strip() for each in request.headers.get("a2a-extensions", "").split(",") if each.strip()]
        if REQUIRED not in asked and not self.does("nothing is required"):
            raise Refused("EXTENSION_SUPPORT_REQUIRED")
        if any("unheard-of" in each for each in asked) and self.does("unknown extensions are refused"):
            raise Refused("INVALID_PARAMS")

    # JSON-RPC

    async def _rpc(self, request: Request) -> Answer:
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
            if body.get("jsonrpc") != "2.0" and not self.does("jsonrpc is not looked at"):
                raise Refused("INVALID_REQUEST")
            if "method" not in body and not self.does("the method is not looked at"):
                raise Refused("INVALID_REQUEST")
            params = body.get("params", {})
            if not isinstance(params, dict):
                raise Refused("INTERNAL" if self.does("parameters may be anything") else "INVALID_PARAMS")
            params = cast("dict[str, Any]", params)
            self._check_headers(request)
            if body.get("method") in ("SendStreamingMessage", "SubscribeToTask"):
                events = await self._stream(body["method"], params, owner, "JSONRPC")
                return self._streamed(self._enveloped(events, id))
            result = await self._operate(str(body.get("method")), params, owner, "JSONRPC")
        except Refused as error:
            return self._rpc_error(id, str(error))
        envelope = {"jsonrpc": "2.0", "id": str(id) if self.does("ids become texts") else id, "result": result}
        if self.does("results without jsonrpc"):
            del envelope["jsonrpc"]
        kind = "text/plain" if self.does("JSON-RPC is text") else "application/json"
        return Answer(body=envelope, headers={"content-type": kind})

    def _rpc_error(self, id: Any, reason: str) -> Answer:
        id = str(id) if id is not None and self.does("ids become texts") else id
        error: dict[str, Any] = {"code": ERRORS[reason][0], "message": self._said_of(reason)}
        error["data"] = self._details(reason, "JSON-RPC errors without a reason")
        if self.does("errors without a message"):
            del error["message"]
        return Answer(body={"jsonrpc": "2.0", "id": id, "error": error})

    def _said_of(self, reason: str) -> str:
        if reason == "INVALID_PARAMS" and self.does("stack traces for all"):
            return TRACE
        return reason.replace("_", " ").capitalize()

    def _details(self, reason: str, wrong: str) -> Any:
        kind = "google.rpc.DebugInfo" if self.does(wrong) else "google.rpc.ErrorInfo"
        info = {"@type": f"type.googleapis.com/{kind}", "reason": reason, "domain": "a2a-protocol.org"}
        if self.does("details are not typed"):
            return [info, {"reason": reason}]
        return [info]

    async def _enveloped(self, events: AsyncGenerator[Any], id: Any) -> AsyncIterator[bytes]:
        async with aclosing(events):
            async for event in events:
                yield sse({"jsonrpc": "2.0", "id": "1" if self.does("events with another id") else id, "result": event})

    def _streamed(self, chunks: AsyncIterator[bytes]) -> Answer:
        kind = "application/octet-stream" if self.does("streams are bytes") else "text/event-stream"
        return Answer(stream=chunks, headers={"content-type": kind})

    async def _stream(
        self, operation: str, params: Mapping[str, Any], owner: str, binding: str
    ) -> AsyncGenerator[dict[str, Any]]:
        """Raises Refused."""
        if operation == "SubscribeToTask":
            return await self.subscribed(str(params.get("id")), owner)
        return await self.streamed(params, owner, binding)

    async def _operate(self, operation: str, params: Mapping[str, Any], owner: str, binding: str) -> Any:
        """Raises Refused."""
        match operation:
            case "SendMessage":
                return await self.send(params, owner, binding)
            case "GetTask":
                return self.get(params, owner, binding)
            case "CancelTask":
                return self.cancel(params, owner)
            case "ListTasks":
                return list_tasks(self, params, owner)
            case "CreateTaskPushNotificationConfig":
                return self.configure(params, owner)
            case "GetTaskPushNotificationConfig":
                return self.configured(params, owner)
            case "ListTaskPushNotificationConfigs":
                return self.configs(params, owner)
            case "DeleteTaskPushNotificationConfig":
                self.unconfigure(params, owner)
                return {}
            case "GetExtendedAgentCard":
                return self._extended()
            case "None":
                raise Refused("METHOD_NOT_FOUND")
            case _:
                raise Refused("INVALID_PARAMS" if self.does("unknown methods have parameters") else "METHOD_NOT_FOUND")

    def _extended(self) -> dict[str, Any]:
        if self.is_bare and not self.does("bare: an extended card anyway"):
            raise Refused("UNSUPPORTED_OPERATION")
        if self.does("no extended card after all"):
            raise Refused("EXTENDED_AGENT_CARD_NOT_CONFIGURED")
        return self._made_card("http://127.0.0.1")

    # REST

    async def _rest(self, request: Request, path: str) -> Answer:
        try:
            owner = self._owner(request)
        except PermissionError:
            return self._stranger()
        try:
            operation, params = self._operation(request, path)
            self._check_headers(request)
            if operation in ("SendStreamingMessage", "SubscribeToTask"):
                events = await self._stream(operation, params, owner, "HTTP+JSON")
                return self._streamed(self._bare_events(events))
            result = await self._operate(operation, params, owner, "HTTP+JSON")
        except Refused as error:
            return self._rest_error(str(error))
        kind = "text/json" if self.does("REST is text") else "application/json"
        return Answer(body=result, headers={"content-type": kind})

    async def _bare_events(self, events: AsyncGenerator[Any]) -> AsyncIterator[bytes]:
        async with aclosing(events):
            async for event in events:
                is_wrapped = self.does("REST events have an envelope")
                yield sse({"jsonrpc": "2.0", "id": 1, "result": event, **event} if is_wrapped else event)

    def _rest_error(self, reason: str) -> Answer:
        _, status, name = ERRORS[reason]
        if reason == "TASK_NOT_FOUND" and self.does("not found is a bad request"):
            status = 400
        if reason == "TASK_NOT_CANCELABLE" and self.does("not cancelable is a failure"):
            status = 500
        error: dict[str, Any] = {"code": status, "status": name, "message": self._said_of(reason)}
        error["details"] = self._details(reason, "REST errors without a reason")
        if self.does("another status in the body"):
            error["code"] = 499
        kind = "text/plain" if self.does("REST errors are text") else "application/json"
        body = reason if self.does("REST errors are bare texts") else error
        return Answer(status, json.dumps({"error": body}), {"content-type": kind})

    def _operation(self, request: Request, path: str) -> tuple[str, dict[str, Any]]:
        """Raises Refused."""
        query: dict[str, Any] = {name: _read(value) for name, value in request.query.items() if name != "A2A-Version"}
        if self.does("the query is in snake case"):
            query.pop("historyLength", None)
        if ".." in unquote(path) and self.does("paths are files"):
            raise Refused("INTERNAL")
        segments = [unquote(each) for each in path.strip("/").split("/")]
        match request.method, segments:
            case "POST", ["message:send"]:
                return "SendMessage", self._body(request)
            case "POST", ["message:stream"]:
                return "SendStreamingMessage", self._body(request)
            case "GET", ["tasks"]:
                return "ListTasks", query
            case "GET", ["extendedAgentCard"]:
                return "GetExtendedAgentCard", {}
            case _, ["tasks", task, "pushNotificationConfigs", *rest]:
                return self._config_operation(request, task, rest)
            case "POST", ["tasks", task] if task.endswith(":cancel"):
                return "CancelTask", {"id": task.removesuffix(":cancel")}
            case _, ["tasks", task] if task.endswith(":subscribe"):
                return "SubscribeToTask", {"id": task.removesuffix(":subscribe")}
            case "GET", ["tasks", id]:
                return "GetTask", {**query, "id": id}
            case _:
                raise Refused("INVALID_REQUEST" if self.does("unknown paths are bad requests") else "METHOD_NOT_FOUND")

    def _config_operation(self, request: Request, task: str, rest: list[str]) -> tuple[str, dict[str, Any]]:
        match request.method, rest:
            case "POST", []:
                return "CreateTaskPushNotificationConfig", {**self._body(request), "taskId": task}
            case "GET", []:
                return "ListTaskPushNotificationConfigs", {"taskId": task}
            case "GET", [id]:
                return "GetTaskPushNotificationConfig", {"taskId": task, "id": id}
            case "DELETE", [id]:
                return "DeleteTaskPushNotificationConfig", {"taskId": task, "id": id}
            case _:
                raise Refused("METHOD_NOT_FOUND")

    def _body(self, request: Request) -> dict[str, Any]:
        if "a2a+json" in request.headers.get("content-type", "") and self.does("only application/json is read"):
            raise Refused("CONTENT_TYPE_NOT_SUPPORTED")
        try:
            body = request.json
        except ValueError:
            raise Refused("INTERNAL" if self.does("broken JSON is a failure of REST") else "PARSE_ERROR") from None
        if not body and self.does("an empty body is not found"):
            raise Refused("TASK_NOT_FOUND")
        return body

    # The card

    def _card(self, request: Request) -> Answer:
        if "x-api-key" not in request.headers and self.does("the card needs a key"):
            return self._stranger()
        card = self._made_card(request.base)
        headers = {
            "content-type": "text/plain" if self.does("the card is plain text") else "application/json",
            "cache-control": "" if self.does("the card is not to be kept") else "max-age=60",
            "etag": "" if self.does("the card has no ETag") else '"1"',
        }
        if request.headers.get("if-none-match") == '"1"' and not self.does("the card is sent again"):
            return Answer(304, headers=headers)
        return Answer(body=card, headers=headers)

    def _made_card(self, base: str) -> dict[str, Any]:
        card: dict[str, Any] = {
            "name": "Scripted",
            "description": "An agent that keeps the rules.",
            "version": "1",
            "provider": {"url": "https://example.com", "organization": "Example"},
            "supportedInterfaces": self._interfaces(f"{base}/agent"),
            "capabilities": self._capabilities(),
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": self._skills(),
            "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Api-Key"}}},
            "securityRequirements": [{"schemes": {"key": {"list": []}}}],
            "signatures": [self._signature()],
        }
        if self.does("a card without a version"):
            del card["version"]
        if self.does("a scheme that is not declared"):
            card["securityRequirements"].append({"schemes": {"other": {"list": []}}})
        if self.does("a scheme of two kinds"):
            card["securitySchemes"]["key"]["httpAuthSecurityScheme"] = {"scheme": "Bearer"}
        return card

    def _interfaces(self, url: str) -> list[dict[str, Any]]:
        names = (
            "JSONRPC",
            *(("HTTP+JSON",) if self.has_rest else ()),
            "grpc" if self.does("bindings in lower case") else "GRPC",
        )
        faces: list[dict[str, Any]] = [
            {"url": url, "protocolBinding": name, "protocolVersion": "1.0"} for name in names
        ]
        faces[-1]["url"] = "https://example.com:443"
        if self.does("an interface without its url"):
            del faces[-1]["url"]
        if self.does("a version with a patch"):
            faces[1]["protocolVersion"] = "1.0.0"
        if self.does("a URL without a host"):
            faces[1]["url"] = "/agent"
        if self.does("an interface twice"):
            faces.append(faces[0])
        if self.does("an interface that is not there"):
            faces.append({**faces[0], "url": f"{url}/elsewhere"})
        return faces

    def _capabilities(self) -> dict[str, Any]:
        uri = "demo" if self.does("an extension that is no URI") else "https://example.com/extensions/other"
        other: dict[str, Any] = {"uri": uri, "description": "Does nothing."}
        if self.does("an extension with a wrong type"):
            other["required"] = "no"
        extensions: list[dict[str, Any]] = [{"uri": REQUIRED, "required": True}, other]
        if self.is_bare:
            return {"extensions": extensions}
        declared: Any = "true" if self.does("a capability that is a text") else True
        return {"streaming": True, "pushNotifications": True, "extendedAgentCard": declared, "extensions": extensions}

    def _skills(self) -> list[dict[str, Any]]:
        skill: dict[str, Any] = {"id": "one", "name": "One", "description": "Does one thing.", "tags": ["demo"]}
        if self.does("a skill without tags"):
            del skill["tags"]
        return [skill, {**skill, "id": "one" if self.does("two skills have one id") else "two"}]

    def _signature(self) -> dict[str, Any]:
        header = {"alg": "ES256", "typ": "JOSE", "kid": "1"}
        if self.does("a signature without a key"):
            del header["kid"]
        protected = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
        return {"protected": protected, "signature": "c2ln====" if self.does("a signature with padding") else "c2ln"}


def _read(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdecimal() else text


SERVER: Final = Server(
    set="a2a-1.0",
    make=Agent,
    violations=VIOLATIONS,
    variants=("bare",),
    path="/agent",
    options=Options(
        headers={"X-Api-Key": "alice"},
        other_headers={"X-Api-Key": "bob"},
        triggers=triggers(**triggers_of_the_agent()),
        timeout=8.0,
    ),
    unbroken={"send.succeeds": "a server that fails it keeps nothing: the dead server shows that"},
)
