"""Scripted A2A 1.0 server: JSON-RPC at the agent's URL, REST below it."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from tests.conformance.servers.a2a_1_0_violations import VIOLATIONS
from tests.conformance.servers.a2a_agent import Refused
from tests.conformance.servers.a2a_grpc_violations import BROKEN_IN_GRPC
from tests.conformance.servers.a2a_lists import list_tasks
from tests.conformance.servers.a2a_served import ERRORS, OPTIONS, Served
from tests.conformance.servers.kit import Answer, Request, Server

REQUIRED: Final = "https://example.com/extensions/required"


class Agent(Served):
    unauthenticated_body = {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "Who are you?"}}
    extended_card_error = "UNSUPPORTED_OPERATION"
    listed = VIOLATIONS
    rest_only = ("rest.", "binding.", "card.", "extended.", "form.rest-error", "version.query", "security.paths")

    async def handle(self, request: Request) -> Answer:
        path = request.path.removeprefix("/agent")
        if path == "/.well-known/agent-card.json" and not self.does("the card is at another path"):
            return self.card(request)
        if not request.path.startswith("/agent") or path.startswith("/.well-known"):
            return Answer(404, {"error": {"code": 404, "status": "NOT_FOUND", "message": "nothing here"}})
        if path in ("", "/") and request.method == "POST":
            return await self.rpc(request)
        return await self.rest(request, path)

    def check_headers(self, request: Request) -> None:
        """Check the version and the extensions. Raises Refused."""
        version = request.headers.get("a2a-version")
        if version is None and not self.does("no version in the query"):
            version = request.query.get("A2A-Version")
        if not version:
            self.raise_unless("no version is the newest", Refused("VERSION_NOT_SUPPORTED"))
        elif version != "1.0":
            is_patched = version.startswith("1.0.") and not self.does("patches matter")
            self.raise_unless("any version is accepted", Refused("VERSION_NOT_SUPPORTED"), when=not is_patched)
        extensions = [each.strip() for each in request.headers.get("a2a-extensions", "").split(",") if each.strip()]
        self.raise_unless("nothing is required", Refused("EXTENSION_SUPPORT_REQUIRED"), when=REQUIRED not in extensions)
        if any("unheard-of" in each for each in extensions) and self.does("unknown extensions are refused"):
            raise Refused("INVALID_PARAMS")

    # JSON-RPC

    async def call_rpc(self, request: Request, method: str, params: dict[str, Any], owner: str, id: Any) -> Any:
        self.check_headers(request)
        if method in ("SendStreamingMessage", "SubscribeToTask"):
            events = await self.open_stream(method, params, owner, "JSONRPC")
            return self.rpc_stream(events, id)
        return await self.operate(method, params, owner, "JSONRPC")

    def rpc_details(self, reason: str) -> dict[str, Any]:
        return {"data": self._details(reason, "JSON-RPC errors without a reason")}

    def _details(self, reason: str, wrong: str) -> Any:
        kind = "google.rpc.DebugInfo" if self.does(wrong) else "google.rpc.ErrorInfo"
        info = {"@type": f"type.googleapis.com/{kind}", "reason": reason, "domain": "a2a-protocol.org"}
        return [info, {"reason": reason}] if self.does("details are not typed") else [info]

    async def open_stream(
        self, operation: str, params: Mapping[str, Any], owner: str, binding: str
    ) -> AsyncGenerator[dict[str, Any]]:
        if operation == "SubscribeToTask":
            return await self.subscribe(str(params.get("id")), owner)
        return await self.send_streaming(params, owner, binding)

    async def operate(self, operation: str, params: Mapping[str, Any], owner: str, binding: str) -> Any:
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
                return self.set_config(params, owner)
            case "GetTaskPushNotificationConfig":
                return self.get_config(params, owner)
            case "ListTaskPushNotificationConfigs":
                return self.list_configs(params, owner)
            case "DeleteTaskPushNotificationConfig":
                self.delete_config(params, owner)
                return {}
            case "GetExtendedAgentCard":
                return self.extended_card()
            case "None":
                raise Refused("METHOD_NOT_FOUND")
            case _:
                raise self.unknown_method()

    # REST

    async def call_rest(self, request: Request, path: str, owner: str) -> Any:
        operation, params = self._operation(request, path)
        self.check_headers(request)
        if operation in ("SendStreamingMessage", "SubscribeToTask"):
            events = await self.open_stream(operation, params, owner, "HTTP+JSON")
            return self.rest_stream(events)
        return await self.operate(operation, params, owner, "HTTP+JSON")

    def rest_error(self, reason: str) -> Answer:
        _, status, name = ERRORS[reason]
        code = self.rest_status(reason, status)
        error: dict[str, Any] = {"code": code, "status": name, "message": self.error_text(reason)}
        error["details"] = self._details(reason, "REST errors without a reason")
        self.set_if("another status in the body", error, code=499)
        return self.rest_answer(reason, status, {"error": reason if self.does("REST errors are bare texts") else error})

    def _operation(self, request: Request, path: str) -> tuple[str, dict[str, Any]]:
        query: dict[str, Any] = {name: _read(value) for name, value in request.query.items() if name != "A2A-Version"}
        if self.does("the query is in snake case"):
            query.pop("historyLength", None)
        self.raise_if("paths are files", Refused("INTERNAL"), when=".." in unquote(path))
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
                raise self.unknown_path()

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
        body = self.rest_body(request)
        self.raise_if("an empty body is not found", Refused("TASK_NOT_FOUND"), when=not body)
        return body

    # The card

    def build_card(self, base: str) -> dict[str, Any]:
        card: dict[str, Any] = {
            **self.common_card(),
            "supportedInterfaces": self.interfaces(f"{base}/agent"),
            "capabilities": self._capabilities(),
            "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Api-Key"}}},
            "securityRequirements": [{"schemes": {"key": {"list": []}}}],
        }
        if self.does("a scheme that is not declared"):
            card["securityRequirements"].append({"schemes": {"other": {"list": []}}})
        if self.does("a scheme of two kinds"):
            card["securitySchemes"]["key"]["httpAuthSecurityScheme"] = {"scheme": "Bearer"}
        return card

    def interfaces(self, url: str) -> list[dict[str, Any]]:
        names = (
            "JSONRPC",
            *(("HTTP+JSON",) if self.has_rest else ()),
            "grpc" if self.does("bindings in lower case") else "https://example.com/bindings/other",
        )
        interfaces: list[dict[str, Any]] = [
            {"url": url, "protocolBinding": name, "protocolVersion": "1.0"} for name in names
        ]
        interfaces[-1]["url"] = "https://example.com:443"
        self.drop_if("an interface without its url", interfaces[-1], "url")
        for interface in interfaces:
            self.drop_if("interfaces without a version", interface, "protocolVersion")
        self.set_if("a version with a patch", interfaces[1], protocolVersion="1.0.0")
        self.set_if("a URL without a host", interfaces[1], url="/agent")
        if self.does("an interface twice"):
            interfaces.append(interfaces[0])
        if self.does("an interface that does not exist"):
            interfaces.append({**interfaces[0], "url": f"{url}/elsewhere"})
        return interfaces

    def _capabilities(self) -> dict[str, Any]:
        uri = "demo" if self.does("an extension that is no URI") else "https://example.com/extensions/other"
        other: dict[str, Any] = {"uri": uri, "description": "Does nothing."}
        self.set_if("an extension with a wrong type", other, required="no")
        extensions: list[dict[str, Any]] = [{"uri": REQUIRED, "required": True}, other]
        if self.is_bare:
            return {"extensions": extensions}
        has_extended_card: Any = "true" if self.does("a capability that is a text") else True
        return {
            "streaming": True,
            "pushNotifications": True,
            "extendedAgentCard": has_extended_card,
            "extensions": extensions,
        }


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
    options=OPTIONS,
    unbroken={
        "send.succeeds": "no other requirement can pass without it; the dead server covers it",
        **dict.fromkeys(BROKEN_IN_GRPC, "the scripted server of gRPC breaks it (test_a2a_grpc.py)"),
    },
)
