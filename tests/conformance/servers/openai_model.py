"""Base of the scripted OpenAI servers: models, keys, errors and shared violations."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from tests.conformance.servers.kit import TRACE, Answer, Request, ScriptedServer, Violation

MODELS: Final = ("mock-1", "mock-2")
CITY: Final = '{"city": "Rome"}'
_KEYS: Final = ("first-caller", "second-caller")

SHARED: Final = (
    # Streams
    Violation("no [DONE]", "stream.done"),
    Violation("streams are cut in an event", "stream.closed"),
    # Calls
    Violation("calls are text", "call.answer", ("call.*",), is_hidden=True),
    Violation("calls are only announced", "call.answer", ("call.*", "~form.*")),
    Violation("other tools are called", "call.name", ("call.named",)),
    Violation("all calls have one id", "call.own-id"),
    Violation("tool_choice none is ignored", "call.none"),
    Violation("a named tool is not called", "call.named", ("call.stream", "~call.stream-*")),
    Violation("calls are not streamed", "call.stream", ("call.stream-*",)),
    # Errors
    Violation("there is a default model", "error.no-model"),
    Violation("unknown roles are accepted", "error.role"),
    Violation("unknown parts are accepted", "error.part"),
    Violation("temperatures have no maximum", "error.temperature"),
    Violation("broken JSON is a 500", "error.json", ("safe.errors",)),
    Violation("failures are empty answers", "error.failure"),
    Violation("failed streams just end", "error.failure-stream"),
    Violation("no key is needed", "error.no-key"),
    Violation("any key is accepted", "error.wrong-key"),
    # Security
    Violation("ids are paths", "safe.ids"),
    # The form of messages
    Violation("JSON has the media type of text", "form.json"),
    Violation("errors have a detail", "form.error"),
)


class Refused(Exception):
    def __init__(self, status: int, words: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(words)
        self.status = status
        self.param = param
        self.code = code


class OpenAi(ScriptedServer):
    """Server of the models. A subclass adds its routes in `_route`."""

    async def handle(self, request: Request) -> Answer:
        path = [each for each in request.path.removeprefix("/v1").split("/") if each]
        try:
            answer = await self._authenticate_and_route(request, path)
        except Refused as error:
            answer = Answer(error.status, self._error(error))
        is_json = answer.body is not None and not isinstance(answer.body, str | bytes)
        if is_json and self.does("JSON has the media type of text"):
            return Answer(answer.status, answer.body, {**answer.headers, "content-type": "text/plain"})
        return answer

    async def _route(self, request: Request, path: list[str]) -> Answer:
        raise NotImplementedError

    async def _authenticate_and_route(self, request: Request, path: list[str]) -> Answer:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.raise_unless("no key is needed", Refused(401, "a key is needed", code="invalid_api_key"), when=not key)
        if key and key not in _KEYS and not self.does("any key is accepted"):
            raise Refused(401, "wrong key", code="invalid_api_key")
        match request.method, path:
            case "GET", ["models"]:
                return self._models()
            case "GET", ["models", *id]:
                return self._model("/".join(id))
            case _:
                return await self._route(request, path)

    def _error(self, error: Refused) -> Any:
        type = "invalid_request_error" if error.status < 500 else "server_error"
        words, param, code = str(error), error.param, error.code
        if self.does("errors show a stack trace"):
            words = TRACE
        if self.does("refusals are of the type error"):
            type = "error"
        if self.does("refusals name no parameter"):
            param = None
        if self.does("unknown models have no code") and code == "model_not_found":
            code = None
        if error.status == 401 and self.does("errors have a detail"):
            return {"detail": words}
        return {"error": {"message": words, "type": type, "param": param, "code": code}}

    # Models

    def _models(self) -> Answer:
        models = [self._model_view(each) for each in MODELS]
        if self.does("models are not listed"):
            return Answer(body={"object": "list", "data": []})
        return Answer(body={"data": models} if self.does("the list of models has no object") else self._list(models))

    def _list(self, items: list[Any]) -> dict[str, Any]:
        return {"object": "list", "data": items}

    def _model_view(self, id: str) -> dict[str, Any]:
        model = {"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "tests"}
        self.drop_if("models have no owner", model, "owned_by")
        return model

    def _model(self, id: str) -> Answer:
        if ".." in id and self.does("ids are paths"):
            return Answer(body="root:x:0:0:root:/root:/bin/sh")
        is_made_up = re.fullmatch("[a-z-]{5,63}", id) and self.does("unknown models exist")
        if id not in MODELS and not is_made_up:
            raise Refused(404, "no such model", "model", "model_not_found")
        return Answer(body=self._model_view("another" if self.does("a model has another id") else id))

    # Requests

    def _json(self, request: Request) -> dict[str, Any]:
        self.raise_if("deep JSON is a server error", Refused(500, "recursion"), when=request.body.count(b"[") > 500)
        try:
            body = request.json
        except ValueError:
            raise Refused(500 if self.does("broken JSON is a 500") else 400, "no JSON") from None
        if not isinstance(body, dict):
            raise Refused(400, "no object")
        return cast("dict[str, Any]", body)

    def _model_of(self, body: dict[str, Any]) -> str:
        """Return the model that a request names."""
        name = body.get("model")
        if name is None and self.does("there is a default model"):
            name = MODELS[0]
        if not isinstance(name, str):
            raise Refused(400, "a model is needed", "model", "missing_required_parameter")
        if name not in MODELS:
            status = 400 if self.does("unknown models are bad requests") else 404
            raise Refused(status, "no such model", "model", "model_not_found")
        return name

    def refuse_unless(self, is_right: bool, param: str, violation: str) -> None:
        self.raise_unless(violation, Refused(400, f"{param} is wrong", param), when=not is_right)

    def check_options(self, body: dict[str, Any]) -> None:
        is_right = (body.get("temperature") or 0) <= 2
        self.refuse_unless(is_right, "temperature", "temperatures have no maximum")
        self.raise_if("options are never null", Refused(400, "null"), when=None in body.values())

    def check_role(self, role: Any, roles: Sequence[str], param: str) -> None:
        self.refuse_unless(role in roles, f"{param}.role", "unknown roles are accepted")
        self.raise_if("system messages are refused", Refused(400, "no system", param), when=role == "system")
        self.raise_if("developers are unknown", Refused(400, "no developer", param), when=role == "developer")

    def text_of(self, messages: Sequence[Any]) -> str:
        """Return the text of the last message."""
        content: Any = messages[-1].get("content") if messages else ""
        if isinstance(content, list):
            return "".join(str(part.get("text", "")) for part in cast("list[Any]", content))
        return str(content or "")

    def wants_call(self, body: Mapping[str, Any], text: str) -> bool:
        choice = body.get("tool_choice")
        if choice == "none" and not self.does("tool_choice none is ignored"):
            return False
        if choice == "required":
            return not self.does("tool_choice required is ignored")
        if isinstance(choice, dict):
            return not self.does("a named tool is not called")
        return bool(body.get("tools")) and text.startswith("call")

    def call_arguments(self) -> Any:
        if self.does("arguments are objects"):
            return {"city": "Rome"}
        return CITY[:-1] if self.does("arguments are cut") else CITY

    # Streams

    def stream_end(self) -> Iterator[bytes]:
        if not self.does("no [DONE]"):
            yield b"data: [DONE]\n\n"
        if self.does("streams are cut in an event"):
            yield b"data: {"

    def wants_stream(self, request: Request, body: dict[str, Any]) -> bool:
        is_event_stream = "event-stream" in request.headers.get("accept", "")
        if is_event_stream and self.does("Accept makes a stream"):
            return True
        return body.get("stream") is True and (is_event_stream or not self.does("streams need an Accept"))
