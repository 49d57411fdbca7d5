"""Scripted A2A 0.3 server: JSON-RPC at the agent's URL, REST below it.

It translates between 0.3 and the agent, which works in terms of 1.0.
"""

from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

from tests.conformance.servers import a2a_0_3_proto as proto
from tests.conformance.servers.a2a_0_3_violations import VIOLATIONS
from tests.conformance.servers.a2a_agent import TERMINAL, Refused, Task
from tests.conformance.servers.a2a_served import ERRORS, OPTIONS, Served
from tests.conformance.servers.kit import Answer, Request, Server

STATUSES: Final[Mapping[str, int]] = {
    "METHOD_NOT_FOUND": 404,
    "TASK_NOT_FOUND": 404,
    "TASK_NOT_CANCELABLE": 409,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": 501,
    "UNSUPPORTED_OPERATION": 501,
    "CONTENT_TYPE_NOT_SUPPORTED": 415,
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": 404,
    "INTERNAL": 500,
}
"""HTTP status of a REST error. Any other error has 400."""


class Agent(Served):
    unauthenticated_body = "Who are you?"
    extended_card_error = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    listed = VIOLATIONS
    rest_only = ("rest.", "binding.", "card.")

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.has_rpc = violation != "REST alone"
        self.has_types_in_rest = violation == "REST in the JSON of the types"

    async def handle(self, request: Request) -> Answer:
        path = request.path.removeprefix("/agent")
        if path == "/.well-known/agent-card.json" and not self.does("the card is at another path"):
            return self.card(request)
        if path == "/.well-known/agent.json":
            return self.card(request)
        if path in ("", "/") and request.path.startswith("/agent") and request.method == "POST":
            return await self.rpc(request)
        if request.path.startswith("/agent/v1/"):
            return await self.rest(request, path.removeprefix("/v1"))
        return Answer(404, "nothing here")

    async def call_rpc(self, request: Request, method: str, params: dict[str, Any], owner: str, id: Any) -> Any:
        if method in ("message/stream", "tasks/resubscribe"):
            return await self._stream(method, params, owner, id)
        return await self._operate(method, params, owner)

    async def _operate(self, method: str, params: Mapping[str, Any], owner: str) -> Any:
        match method:
            case "message/send":
                sent = await self.send(self._send_params(params), owner, "JSONRPC")
                return self._send_result(sent, is_plain=self._is_plain(params))
            case "tasks/get":
                return self._task(self.get(params, owner, "JSONRPC"))
            case "tasks/cancel":
                return self._task(self.cancel(params, owner))
            case "agent/getAuthenticatedExtendedCard":
                return self.extended_card()
            case str() if method.startswith("tasks/pushNotificationConfig/"):
                return self._configs(method.rpartition("/")[2], params, owner)
            case "None":
                raise Refused("METHOD_NOT_FOUND")
            case _:
                raise self.unknown_method()

    def _configs(self, method: str, params: Mapping[str, Any], owner: str) -> Any:
        ids = {"taskId": params.get("id"), "id": params.get("pushNotificationConfigId")}
        match method:
            case "set":
                config: dict[str, Any] = params.get("pushNotificationConfig") or {}
                return self._config(self.set_config({**self._config_in(config), "taskId": params.get("taskId")}, owner))
            case "get" if ids["id"] is None:
                configs = self.list_configs(ids, owner)["configs"]
                if not configs or self.does("a config needs its id"):
                    raise Refused("INVALID_PARAMS")
                return self._config(configs[0])
            case "get":
                return self._config(self.get_config(ids, owner))
            case "list":
                return [self._config(each) for each in self.list_configs(ids, owner)["configs"]]
            case "delete":
                self.delete_config(ids, owner)
                return {} if self.does("a deletion has a result") else None
            case _:
                raise Refused("METHOD_NOT_FOUND")

    # REST

    async def call_rest(self, request: Request, path: str, owner: str) -> Any:
        return await self._operate_rest(request, [unquote(each) for each in path.strip("/").split("/")], owner)

    def rest_error(self, reason: str) -> Answer:
        return self.rest_answer(reason, STATUSES.get(reason, 400), {"message": reason, "code": ERRORS[reason][0]})

    async def _operate_rest(self, request: Request, segments: list[str], owner: str) -> Any:
        match request.method, segments:
            case "POST", ["message:send"]:
                sent = await self.send(self._send_params_rest(request), owner, "HTTP+JSON")
                if self.has_types_in_rest:
                    return self._send_result(sent, is_plain=False)
                return proto.event_out(sent, is_final=False)
            case "POST", ["message:stream"]:
                return self.rest_stream(await self.send_streaming(self._send_params_rest(request), owner, "HTTP+JSON"))
            case "GET", ["tasks", task] if task.endswith(":subscribe"):
                return self.rest_stream(await self.subscribe(task.removesuffix(":subscribe"), owner))
            case "POST", ["tasks", task] if task.endswith(":cancel"):
                return self._task_rest(self.cancel({"id": task.removesuffix(":cancel")}, owner))
            case "GET", ["tasks", task]:
                length = request.query.get("historyLength")
                params = {"id": task, **({} if length is None else {"historyLength": int(length)})}
                return self._task_rest(self.get(params, owner, "HTTP+JSON"))
            case "GET", ["card"]:
                return self.extended_card()
            case _, ["tasks", task, "pushNotificationConfigs", *rest]:
                return self._configs_rest(request, task, rest, owner)
            case _:
                raise self.unknown_path()

    def _configs_rest(self, request: Request, task: str, rest: list[str], owner: str) -> Any:
        out = self._config if self.has_types_in_rest else proto.config_out
        match request.method, rest:
            case "POST", []:
                body = self.rest_body(request)
                config = self._config_in(body["config"]["pushNotificationConfig"])
                return out(self.set_config({**config, "taskId": task}, owner))
            case "GET", []:
                listed = [out(each) for each in self.list_configs({"taskId": task}, owner)["configs"]]
                return listed if self.has_types_in_rest else {"configs": listed}
            case "GET", [id]:
                return out(self.get_config({"taskId": task, "id": id}, owner))
            case "DELETE", [id]:
                self.delete_config({"taskId": task, "id": id}, owner)
                return {}
            case _:
                raise Refused("METHOD_NOT_FOUND")

    def _send_params_rest(self, request: Request) -> dict[str, Any]:
        body = self.rest_body(request)
        self.raise_if("an empty body is a failure", Refused("INTERNAL"), when=not body)
        message = body.get("message")
        result = dict(body)
        if isinstance(message, dict):
            result["message"] = proto.message_in(cast("dict[str, Any]", message))
        configuration: dict[str, Any] = dict(body.get("configuration") or {})
        configuration["returnImmediately"] = not configuration.pop("blocking", False)
        if config := configuration.pop("pushNotification", None):
            configuration["taskPushNotificationConfig"] = self._config_in(config)
        return {**result, "configuration": configuration}

    def _task_rest(self, task: Mapping[str, Any]) -> dict[str, Any]:
        return self._task(task) if self.has_types_in_rest else proto.task_out(task)

    def rest_event(self, event: dict[str, Any]) -> Any:
        task = self.tasks.get(self._task_id(event))
        if self.has_types_in_rest:
            return self._event(task, event, is_last=True)
        is_final = "statusUpdate" in event and self._is_final(task, event["statusUpdate"])
        return proto.event_out(event, is_final=is_final)

    # From 0.3 to 1.0

    def _send_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        message: Any = params.get("message")
        result = dict(params)
        if isinstance(message, dict):
            result["message"] = self._message_in(cast("dict[str, Any]", message))
        configuration: dict[str, Any] = dict(params.get("configuration") or {})
        if "blocking" in configuration:
            if configuration["blocking"] is False and self.does("only blocking is taken"):
                raise Refused("INVALID_PARAMS")
            configuration["returnImmediately"] = configuration.pop("blocking") is False
        if config := configuration.pop("pushNotificationConfig", None):
            configuration["taskPushNotificationConfig"] = self._config_in(config)
        return {**result, "configuration": configuration}

    def _message_in(self, message: dict[str, Any]) -> dict[str, Any]:
        result = {name: value for name, value in message.items() if name != "kind"}
        if result.get("role") == "user":
            result["role"] = "ROLE_USER"
        parts: Any = result.get("parts")
        if isinstance(parts, list):
            result["parts"] = [self._part_in(part) for part in cast("list[dict[str, Any]]", parts)]
        return result

    def _part_in(self, part: dict[str, Any]) -> dict[str, Any]:
        names = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}
        file: dict[str, Any] = part.get("file") or {}
        rest = {name: value for name, value in part.items() if name not in ("kind", "file")}
        return {**rest, **{names.get(name, name): value for name, value in file.items()}}

    def _config_in(self, config: Mapping[str, Any]) -> dict[str, Any]:
        result = dict(config)
        if authentication := result.get("authentication"):
            result["authentication"] = {**authentication, "scheme": authentication["schemes"][0]}
        return result

    # From 1.0 to 0.3

    def _is_plain(self, params: Mapping[str, Any]) -> bool:
        """Return True if the message is only a greeting: no configuration, no context, no task."""
        message: Any = params.get("message", {})
        is_alone = not {"contextId", "taskId"} & message.keys() and len(message["parts"]) == 1
        return "configuration" not in params and is_alone and self.word_of(message) == "Hello"

    def _send_result(self, sent: dict[str, Any], *, is_plain: bool) -> Any:
        result = self._message(sent["message"]) if "message" in sent else self._task(sent["task"])
        self.drop_if("a result without its kind", result, "kind", when=is_plain)
        return {"task": result} if is_plain and self.does("results are wrapped") else result

    def _task(self, task: Mapping[str, Any]) -> dict[str, Any]:
        result = {"kind": "task", **task, "status": self._status_out(task["status"])}
        if "artifacts" in task:
            result["artifacts"] = [self._artifact_out(each) for each in task["artifacts"]]
        if "history" in task:
            result["history"] = [self._message(each) for each in task["history"]]
        if self.does("a task without its context"):
            result.pop("contextId", None)
        return result

    def _status_out(self, status: Mapping[str, Any]) -> dict[str, Any]:
        result = dict(status)
        if "state" in result and not self.does("states as in 1.0"):
            result["state"] = result["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")
        if "message" in result:
            result["message"] = self._message(result["message"])
        self.set_if("times in words", result, timestamp="yesterday")
        return result

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        result = {"kind": "message", **message}
        if not self.does("roles as in 1.0"):
            result["role"] = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}.get(result["role"], result["role"])
        result["parts"] = [self._part(each) for each in message["parts"]]
        return result

    def _artifact_out(self, artifact: Mapping[str, Any]) -> dict[str, Any]:
        return {**artifact, "parts": [self._part(each) for each in artifact["parts"]]}

    def _part(self, part: Mapping[str, Any]) -> dict[str, Any]:
        names = {"filename": "name", "mediaType": "mimeType"}
        if "raw" in part or "url" in part:
            file = {new: part[old] for old, new in names.items() if old in part}
            name = "bytes" if "raw" in part else "uri"
            file[name] = part["raw" if "raw" in part else "url"]
            self.set_if("a file of two kinds", file, uri="https://example.com/file")
            return {"kind": "file", "file": file}
        result = {"kind": "data" if "data" in part else "text", **part}
        self.drop_if("parts without a kind", result, "kind")
        return result

    def _config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        result = {name: value for name, value in config.items() if name != "taskId"}
        if authentication := result.get("authentication"):
            result["authentication"] = {"schemes": [authentication["scheme"]]}
        return {"taskId": config["taskId"], "pushNotificationConfig": result}

    def push_body(self, task: Task, event: dict[str, Any]) -> Any:
        if self.does("pushes are events"):
            return self._event(task, event, is_last=False)
        return self._task(self.view(task))

    # Streams

    async def _stream(self, method: str, params: Mapping[str, Any], owner: str, id: Any) -> Answer:
        if method == "tasks/resubscribe":
            events = await self.subscribe(str(params.get("id")), owner)
        else:
            events = await self.send_streaming(self._send_params(params), owner, "JSONRPC")
        return self.rpc_stream(events, id)

    def rpc_event(self, event: dict[str, Any]) -> Any:
        return self._event(self.tasks.get(self._task_id(event)), event, is_last=True)

    @staticmethod
    def _task_id(event: Mapping[str, Any]) -> str:
        content = next(iter(event.values()))
        return str(content.get("id") or content.get("taskId"))

    def _event(self, task: Task | None, event: Mapping[str, Any], *, is_last: bool) -> dict[str, Any]:
        if "task" in event:
            return self._task(event["task"])
        if "message" in event:
            return self._message(event["message"])
        if "artifactUpdate" in event:
            update = event["artifactUpdate"]
            result = {"kind": "artifact-update", **update, "artifact": self._artifact_out(update["artifact"])}
            return {**result, "kind": "artifact"} if self.does("an event of an unknown kind") else result
        update = event["statusUpdate"]
        status = self._status_out(update["status"])
        result = {
            "kind": "status-update",
            **update,
            "status": status,
            "final": self._is_final(task, update) and is_last,
        }
        self.drop_if("status updates without final", result, "final")
        return result

    def _is_final(self, task: Task | None, update: Mapping[str, Any]) -> bool:
        state = str(update["status"].get("state")).removeprefix("TASK_STATE_").upper()
        word = task.word if task is not None else ""
        if state == "WORKING" and word == "stream" and self.does("work is final"):
            return True
        if state == "FAILED" and self.does("failure is not final"):
            return False
        if state == "INPUT_REQUIRED":
            return not self.does("a question is not final")
        return state in TERMINAL and not (word == "stream" and self.does("no update is final"))

    # The card

    def build_card(self, base: str) -> dict[str, Any]:
        url = f"{base}/agent"
        card: dict[str, Any] = {
            **self.common_card(),
            "protocolVersion": "0.3.0",
            "url": "/agent" if self.does("a URL without a host") else url,
            "preferredTransport": "JSONRPC" if self.has_rpc else "HTTP+JSON",
            "additionalInterfaces": self._interfaces(url),
            "capabilities": self._capabilities(),
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"}},
            "security": [{"key": []}],
            "supportsAuthenticatedExtendedCard": not self.is_bare,
        }
        if self.does("a scheme that is not declared"):
            card["security"].append({"other": []})
        self.drop_if("a scheme without its name", card["securitySchemes"]["key"], "name")
        return card

    def _interfaces(self, url: str) -> list[dict[str, Any]]:
        interfaces: list[dict[str, Any]] = [{"url": url, "transport": "JSONRPC"}]
        interfaces.append({"url": "https://example.com:443", "transport": "GRPC"})
        if self.has_rest:
            interfaces.append({"url": url, "transport": "HTTP+JSON"})
        if not self.has_rpc:
            del interfaces[0]
        self.set_if("transports in lower case", interfaces[1], transport="grpc")
        self.drop_if("an interface without its url", interfaces[1], "url")
        if self.does("the card's url is not listed"):
            interfaces = [each for each in interfaces if each["url"] != url]
        if self.does("one URL of two transports"):
            interfaces[0] = {"url": url, "transport": "HTTP+JSON"}
        if self.does("an interface that does not exist"):
            interfaces.append({"url": f"{url}/elsewhere", "transport": "JSONRPC"})
        return interfaces

    def _capabilities(self) -> dict[str, Any]:
        other: dict[str, Any] = {"uri": "https://example.com/extensions/other"}
        self.set_if("an extension that is no URI", other, uri="demo")
        self.set_if("an extension with a wrong type", other, required="no")
        capabilities: dict[str, Any] = {"extensions": [other], "stateTransitionHistory": False}
        self.set_if("a capability that is a text", capabilities, stateTransitionHistory="no")
        return capabilities if self.is_bare else {**capabilities, "streaming": True, "pushNotifications": True}


SERVER: Final = Server(
    set="a2a-0.3",
    make=Agent,
    violations=VIOLATIONS,
    variants=("bare", "REST alone", "REST in the JSON of the types"),
    path="/agent",
    options=OPTIONS,
    unbroken={
        "send.succeeds": "no other requirement can pass without it; the dead server covers it",
        "card.old-place": "it is optional, and its absence is no failure",
    },
)
