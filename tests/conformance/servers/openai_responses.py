"""Scripted Open Responses server, which stores responses as OpenAI's servers do."""

import asyncio
import copy
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import count
from typing import Any, Final, cast

from tests.conformance.servers.kit import Answer, Request, Server, Violation, options, sse
from tests.conformance.servers.openai_model import CITY, SHARED, OpenAi, Refused

_ROLES: Final = ("developer", "system", "user", "assistant")
_PARTS: Final = ("input_text", "input_image", "input_file", "output_text", "refusal")
_KINDS: Final = ("message", "function_call", "function_call_output", "reasoning", "item_reference")

VIOLATIONS: Final = (
    *SHARED,
    Violation("numbers are left out", "stream.no-gap"),
    Violation("ASCII only", "respond.unicode"),
    # Responses
    Violation("responses stay in progress", "respond.completed", ("respond.*", "~stream.*")),
    Violation(
        "answers have no text",
        "respond.text",
        ("respond.schema", "call.result", "stream.usage", "form.text", "background.ends", "~stream.*"),
    ),
    Violation("messages are the user's", "respond.role"),
    Violation("items stay in progress", "respond.item-completed"),
    Violation("all responses have one id", "respond.own-id", ("respond.concurrent", "~*")),
    Violation("all items have one id", "respond.item-id"),
    Violation("times are in milliseconds", "respond.created-at"),
    Violation("completed_at is null", "respond.completed-at"),
    Violation("completed responses have details", "respond.no-error"),
    Violation("the total is that of the output", "respond.usage-sum"),
    Violation(
        "concurrent responses share an id", "respond.concurrent", ("~respond.*", "~chain.*", "~stored.*", "~call.*")
    ),
    Violation("inputs are text", "respond.items", ("respond.*", "call.result")),
    Violation("messages need a type", "respond.easy-message"),
    Violation("system messages are refused", "respond.system"),
    Violation("developers are unknown", "respond.developer"),
    Violation("output_text is no input", "respond.history"),
    Violation("only users may speak in text", "respond.history-text", ("respond.system", "respond.developer")),
    Violation("images are refused", "respond.image"),
    Violation("options are never null", "respond.nulls"),
    Violation("settings are not returned", "respond.settings"),
    Violation("metadata are not returned", "respond.metadata"),
    Violation("tools are not returned", "respond.tools", ("form.tool",)),
    Violation("Accept makes a stream", "respond.no-stream", ("form.response",)),
    Violation("schemas are ignored", "respond.schema"),
    # Streams
    Violation(
        "streams need an Accept", "stream.answer", ("call.stream", "~stream.*", "~call.*", "~stored.*", "form.event")
    ),
    Violation("no event lines", "stream.event-line"),
    Violation("events have ids", "stream.no-ids"),
    Violation("no response.created", "stream.created"),
    Violation("no response.in_progress", "stream.in-progress"),
    Violation("response.created is completed", "stream.empty-first"),
    Violation("numbers are all 0", "stream.numbers", ("stream.no-gap", "stored.replay-after")),
    Violation("something follows the end", "stream.completed", ("~stream.*",)),
    Violation("responses end twice", "stream.one-end"),
    Violation("each event has another response", "stream.one-id"),
    Violation("items are not added", "stream.items", ("stream.item-id", "call.stream")),
    Violation("parts are not added", "stream.parts"),
    Violation("events name another item", "stream.item-id"),
    Violation("pieces are sent twice", "stream.text"),
    Violation("parts are done without text", "stream.part-text", ("stream.item-parts",)),
    Violation("items are done without parts", "stream.item-parts", ("stream.output",)),
    Violation("the last event has no output", "stream.output", ("stream.usage", "call.stream-output", "~stored.*")),
    Violation("the last event has no usage", "stream.usage"),
    # Calls
    Violation("arguments are cut", "call.arguments", ("call.stream-arguments",)),
    Violation("results are refused", "call.result"),
    Violation("tool_choice required is ignored", "call.required"),
    Violation("results need no call", "call.unknown-result"),
    Violation("arguments are sent twice", "call.stream-arguments"),
    Violation("calls are not in the last event", "call.stream-output"),
    # Follow-up responses
    Violation("previous_response_id is forgotten", "chain.previous"),
    Violation("unknown responses are continued", "chain.unknown", ("chain.code", "safe.owner-chain")),
    Violation("unknown responses have no code", "chain.code"),
    # Stored responses
    Violation("stored responses have no output", "stored.get", ("stored.get-streamed", "background.ends")),
    Violation("streamed responses are not stored", "stored.get-streamed", ("stored.replay*",)),
    Violation("store false is ignored", "stored.not"),
    Violation("unknown responses are bad requests", "stored.unknown", ("stored.not", "stored.delete", "safe.owner")),
    Violation("nothing is deleted", "stored.delete"),
    Violation("inputs are not stored", "stored.input"),
    Violation("streams are not stored", "stored.replay", ("stored.replay-after",)),
    Violation("starting_after is ignored", "stored.replay-after"),
    # Responses in the background
    Violation("background is waited for", "background.answer"),
    Violation("the background is never done", "background.ends"),
    Violation("cancelled responses have failed", "background.cancel"),
    Violation("cancelled responses are conflicts", "background.cancel-again"),
    Violation("everything is cancelled", "background.foreground"),
    # Errors
    Violation("an input may be a number", "error.input"),
    Violation("unknown items are accepted", "error.item"),
    Violation("any model is accepted", "error.model"),
    # Security
    Violation("errors show a stack trace", "safe.errors"),
    Violation("responses are open to all callers", "safe.owner"),
    Violation("any caller can continue a response", "safe.owner-chain"),
    # The form of messages
    Violation("responses have no truncation", "form.response"),
    Violation("tools have no strict", "form.tool"),
    Violation("usage has no details", "form.usage"),
    Violation(
        "items have no id",
        "form.item",
        ("form.message", "form.call", "respond.item-id", "form.event", "~stream.item-id"),
    ),
    Violation("messages have no status", "form.message", ("respond.item-completed",)),
    Violation("items are done", "form.item-status", ("respond.item-completed",)),
    Violation("texts have no annotations", "form.text"),
    Violation("arguments are objects", "form.call", ("call.arguments", "call.stream-arguments")),
    Violation("deltas have no index", "form.event", ("stream.item-id", "stream.parts")),
)


class Responses(OpenAi):
    """Server whose model does what the last message says."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self._numbers = count(1)
        self.stored: dict[str, dict[str, Any]] = {}
        self.owners: dict[str, str] = {}
        self.inputs: dict[str, list[Any]] = {}
        self.streams: dict[str, list[Any]] = {}
        self._busy = 0
        self._shared: dict[str, Any] = {}

    async def _route(self, request: Request, path: list[str]) -> Answer:
        match request.method, path:
            case "POST", ["responses"]:
                return await self._create(request)
            case "GET", ["responses", id]:
                return self._get(request, id)
            case "DELETE", ["responses", id]:
                self._find(request, id)
                if not self.does("nothing is deleted"):
                    del self.stored[id]
                return Answer(body={"id": id, "object": "response", "deleted": True})
            case "POST", ["responses", id, "cancel"]:
                return self._cancel(request, id)
            case "GET", ["responses", id, "input_items"]:
                self._find(request, id)
                items = [] if self.does("inputs are not stored") else self.inputs[id]
                return Answer(body={"object": "list", "data": items, "has_more": False})
            case _:
                if ".." in request.path and self.does("ids are paths"):
                    return Answer(body="root:x:0:0:root:/root:/bin/sh")
                raise Refused(404, "no such path")

    # Requests

    async def _create(self, request: Request) -> Answer:
        body = self._validated(request, self._json(request))
        text = self.ascii_if("ASCII only", self.text_of(body["input"]))
        if self.wants_stream(request, body):
            return Answer(stream=self._stream(request, body, text))
        if text.startswith("fail") and not self.does("failures are empty answers"):
            raise Refused(500, "the model failed")
        if body.get("background") is True:
            return Answer(body=await self._in_background(request, body, text))
        response = self._response(body, "completed")
        self._busy += 1
        if self._busy > 1 and self._shared and self.does("concurrent responses share an id"):
            response["id"] = self._shared["id"]
        self._shared = response
        await asyncio.sleep(0.005)
        self._busy -= 1
        response["output"] = self._output(body, text)
        self.set_if("responses stay in progress", response, status="in_progress")
        self._store(request, body, response)
        return Answer(body=response)

    def _validated(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        self.set_if("any model is accepted", body, model="mock-1", when="model" in body)
        model = self._model_of(body)
        input = body.get("input")
        if isinstance(input, int) and self.does("an input may be a number"):
            input = "Hello"
        if isinstance(input, str):
            input = [{"type": "message", "role": "user", "content": input}]
        elif self.does("inputs are text"):
            raise Refused(400, "input is text", "input")
        if not isinstance(input, list):
            raise Refused(400, "input is needed", "input")
        items = cast("list[Any]", input)
        calls: set[str] = set()
        for item in items:
            self._check_item(item, calls)
        self.check_options(body)
        self._check_previous(request, body)
        return {**body, "model": model, "input": items}

    def _check_previous(self, request: Request, body: Mapping[str, Any]) -> None:
        previous = body.get("previous_response_id")
        if previous is None or self.does("unknown responses are continued"):
            return
        is_mine = self.owners.get(previous) == request.headers.get("authorization") or self.does(
            "any caller can continue a response"
        )
        if previous not in self.stored or not is_mine:
            code = None if self.does("unknown responses have no code") else "previous_response_not_found"
            raise Refused(400, "no such response", "previous_response_id", code)

    def _check_item(self, item: Any, calls: set[str]) -> None:
        self.raise_if("messages need a type", Refused(400, "a type is needed", "input"), when="type" not in item)
        kind = item.get("type", "message")
        self.refuse_unless(kind in _KINDS, "input.type", "unknown items are accepted")
        if kind == "message":
            self._check_message(item)
        if kind == "function_call":
            calls.add(item["call_id"])
        if kind == "function_call_output":
            self.raise_if("results are refused", Refused(400, "no results", "input"), when=item["call_id"] in calls)
            self.refuse_unless(item["call_id"] in calls, "input.call_id", "results need no call")

    def _check_message(self, item: Mapping[str, Any]) -> None:
        role, content = item.get("role"), item.get("content")
        self.check_role(role, _ROLES, "input")
        if isinstance(content, str) and role != "user" and self.does("only users may speak in text"):
            raise Refused(400, "parts are needed", "input")
        if not isinstance(content, list):
            return
        for part in cast("list[Any]", content):
            self.refuse_unless(part.get("type") in _PARTS, "input.content", "unknown parts are accepted")
            if part.get("type") == "output_text" and self.does("output_text is no input"):
                raise Refused(400, "no output_text", "input")
            if part.get("type") == "input_image" and self.does("images are refused"):
                raise Refused(400, "no images", "input")

    # Responses

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"

    def _response(self, body: Mapping[str, Any], status: str) -> dict[str, Any]:
        now = int(time.time() * (1000 if self.does("times are in milliseconds") else 1))
        is_over = status == "completed"
        settings: Mapping[str, Any] = {} if self.does("settings are not returned") else body
        text_options: dict[str, Any] = body.get("text") or {}
        response: dict[str, Any] = {
            "id": "resp_0" if self.does("all responses have one id") else self._id("resp"),
            "object": "response",
            "created_at": now,
            "completed_at": now if is_over and not self.does("completed_at is null") else None,
            "status": status,
            "incomplete_details": {"reason": "x"}
            if is_over and self.does("completed responses have details")
            else None,
            "model": body["model"],
            "previous_response_id": body.get("previous_response_id"),
            "instructions": settings.get("instructions"),
            "output": [],
            "error": None,
            "tools": []
            if self.does("tools are not returned")
            else [self._tool(each) for each in body.get("tools") or ()],
            "tool_choice": body.get("tool_choice") or "auto",
            "truncation": "disabled",
            "parallel_tool_calls": True,
            "text": {"format": text_options.get("format") or {"type": "text"}},
            "top_p": settings.get("top_p") or 1,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "top_logprobs": 0,
            "temperature": settings.get("temperature") or 1,
            "reasoning": None,
            "usage": self._usage() if is_over else None,
            "max_output_tokens": settings.get("max_output_tokens"),
            "max_tool_calls": None,
            "store": body.get("store") is not False,
            "background": body.get("background") is True,
            "service_tier": "default",
            "metadata": {} if self.does("metadata are not returned") else body.get("metadata") or {},
            "safety_identifier": None,
            "prompt_cache_key": None,
        }
        self.set_if("previous_response_id is forgotten", response, previous_response_id=None)
        self.drop_if("responses have no truncation", response, "truncation")
        return response

    def _tool(self, tool_of_request: Mapping[str, Any]) -> dict[str, Any]:
        tool = {"description": None, "parameters": None, "strict": None, **tool_of_request}
        self.drop_if("tools have no strict", tool, "strict")
        return tool

    def _usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
        self.set_if("the total is that of the output", usage, total_tokens=3)
        if not self.does("usage has no details"):
            usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return usage

    def _output(self, body: Mapping[str, Any], text: str) -> list[Any]:
        if self.wants_call(body, text) and not self.does("calls are text"):
            return [] if self.does("calls are only announced") else [self._call(body)]
        if self.does("answers have no text") or text.startswith("fail"):
            return [self._message("")]
        text_options: dict[str, Any] = body.get("text") or {}
        wants_json = "format" in text_options
        return [self._message(CITY if wants_json and not self.does("schemas are ignored") else f"You said: {text}")]

    def _message(self, text: str) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        self.drop_if("texts have no annotations", part, "annotations")
        message: dict[str, Any] = {
            "type": "message",
            "id": "msg_0" if self.does("all items have one id") else self._id("msg"),
            "status": self._status(),
            "role": "user" if self.does("messages are the user's") else "assistant",
            "content": [part] if text else [],
        }
        return self._without(message, "messages have no status", "status")

    def _status(self) -> str:
        if self.does("items are done"):
            return "done"
        return "in_progress" if self.does("items stay in progress") else "completed"

    def _call(self, body: Mapping[str, Any]) -> dict[str, Any]:
        call: dict[str, Any] = {
            "type": "function_call",
            "id": self._id("fc"),
            "call_id": "call_0" if self.does("all calls have one id") else self._id("call"),
            "name": "get_time" if self.does("other tools are called") else body["tools"][0]["name"],
            "arguments": self.call_arguments(),
            "status": self._status(),
        }
        return self._without(call, "", "")

    def _without(self, item: dict[str, Any], violation: str, name: str) -> dict[str, Any]:
        if violation and self.does(violation):
            del item[name]
        self.drop_if("items have no id", item, "id")
        return item

    # Streams

    def _numbers_of(self, events: Sequence[Any]) -> range:
        return range(0, 2 * len(events), 2) if self.does("numbers are left out") else range(len(events))

    async def _stream(self, request: Request, body: Mapping[str, Any], text: str) -> AsyncGenerator[bytes]:
        response = self._response(body, "in_progress")
        events = [*self._first_events(response)]
        if text.startswith("fail"):
            if not self.does("failed streams just end"):
                error = {"code": "server_error", "message": "it failed"}
                events.append({"type": "response.failed", "response": {**response, "status": "failed", "error": error}})
        else:
            output = self._output(body, text)
            for index, item in enumerate(output):
                events += self._item_events(index, item)
            done = {**response, "status": "completed", "completed_at": int(time.time())}
            events += self._last_events({**done, "output": output, "usage": self._usage()})
        numbered = [
            {**event, "sequence_number": 0 if self.does("numbers are all 0") else number}
            for number, event in zip(self._numbers_of(events), events, strict=True)
        ]
        last: Any = numbered[-1].get("response") or response
        self._store(request, body, last if not self.does("streamed responses are not stored") else None, numbered)
        for event in numbered:
            yield self._frame(event)
        for frame in self.stream_end():
            yield frame

    def _first_events(self, response: Mapping[str, Any]) -> list[dict[str, Any]]:
        created = {**response, "status": "completed"} if self.does("response.created is completed") else response
        events = [
            {"type": "response.created", "response": created},
            {"type": "response.in_progress", "response": response},
        ]
        if self.does("no response.created"):
            del events[0]
        if self.does("no response.in_progress"):
            del events[-1]
        return copy.deepcopy(events)

    def _last_events(self, response: dict[str, Any]) -> list[dict[str, Any]]:
        self.set_if("the last event has no output", response, output=list[Any]())
        if self.does("calls are not in the last event"):
            items: list[Any] = response["output"]
            response["output"] = [each for each in items if each["type"] != "function_call"]
        self.set_if("the last event has no usage", response, usage=None)
        if self.does("each event has another response"):
            response["id"] = self._id("resp")
        events = [{"type": "response.completed", "response": response}]
        if self.does("responses end twice"):
            events *= 2
        if self.does("something follows the end"):
            events.append({"type": "tests:more", "response": response})
        return events

    def _item_events(self, index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
        is_call = item["type"] == "function_call"
        where = {"item_id": item.get("id", ""), "output_index": index}
        self.set_if("events name another item", where, item_id="msg_other")
        empty: dict[str, Any] = {"arguments": ""} if is_call else {"content": []}
        begun = {**item, "status": "in_progress", **empty} if "status" in item else {**item, **empty}
        done = dict(item)
        self.set_if("items are done without parts", done, content=[], when=not is_call)
        events: list[dict[str, Any]] = [{"type": "response.output_item.added", "output_index": index, "item": begun}]
        if self.does("items are not added") or (is_call and self.does("calls are not streamed")):
            events = []
        if is_call:
            events += [] if self.does("calls are not streamed") else self._argument_events(where, item)
        else:
            events += self._text_events(where, item)
        if not (is_call and self.does("calls are not streamed")):
            events.append({"type": "response.output_item.done", "output_index": index, "item": done})
        return events

    def _argument_events(self, where: Mapping[str, Any], item: Mapping[str, Any]) -> list[dict[str, Any]]:
        text: Any = item["arguments"]
        pieces = [text[:5], text[5:]] if isinstance(text, str) else [str(text)]
        if self.does("arguments are sent twice"):
            pieces *= 2
        deltas = [{"type": "response.function_call_arguments.delta", **where, "delta": each} for each in pieces]
        return [*deltas, {"type": "response.function_call_arguments.done", **where, "arguments": str(text)}]

    def _text_events(self, where: Mapping[str, Any], item: Mapping[str, Any]) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        for number, part in enumerate(item["content"]):
            there = {**where, "content_index": number}
            pieces = [f"{word} " for word in part["text"].split(" ")]
            pieces[-1] = pieces[-1][:-1]
            if self.does("pieces are sent twice"):
                pieces *= 2
            if not self.does("parts are not added"):
                events.append({"type": "response.content_part.added", **there, "part": {**part, "text": ""}})
            delta = {name: value for name, value in there.items() if name != "output_index"}
            at = delta if self.does("deltas have no index") else there
            events += [{"type": "response.output_text.delta", **at, "delta": each, "logprobs": []} for each in pieces]
            events.append({"type": "response.output_text.done", **there, "text": part["text"], "logprobs": []})
            done_part = {**part, "text": ""} if self.does("parts are done without text") else part
            events.append({"type": "response.content_part.done", **there, "part": done_part})
        return events

    def _frame(self, event: Mapping[str, Any]) -> bytes:
        kind = "" if self.does("no event lines") else event["type"]
        id = str(event["sequence_number"]) if self.does("events have ids") else ""
        return sse(event, event=kind, id=id)

    # Stored responses

    def _store(
        self, request: Request, body: Mapping[str, Any], response: dict[str, Any] | None, events: Sequence[Any] = ()
    ) -> None:
        if response is None or (body.get("store") is False and not self.does("store false is ignored")):
            return
        id: str = response["id"]
        self.stored[id] = response
        self.owners[id] = request.headers.get("authorization", "")
        self.inputs[id] = list(body["input"])
        self.streams[id] = list(events)

    async def _in_background(self, request: Request, body: Mapping[str, Any], text: str) -> dict[str, Any]:
        response = self._response(body, "in_progress")
        self._store(request, body, response)
        answer = copy.deepcopy(response)
        if not (text.startswith("long") or self.does("the background is never done")):
            done = {"status": "completed", "output": self._output(body, text), "usage": self._usage()}
            asyncio.get_running_loop().call_later(0.01, response.update, done)
        return {**answer, "status": "completed"} if self.does("background is waited for") else answer

    def _cancel(self, request: Request, id: str) -> Answer:
        response = self._find(request, id)
        if response["status"] == "cancelled" and self.does("cancelled responses are conflicts"):
            raise Refused(409, "it is cancelled")
        if not (response["background"] or self.does("everything is cancelled")):
            raise Refused(400, "it was not made in the background")
        if response["status"] == "in_progress":
            response["status"] = "failed" if self.does("cancelled responses have failed") else "cancelled"
        return Answer(body=response)

    def _find(self, request: Request, id: str) -> dict[str, Any]:
        is_mine = self.owners.get(id) == request.headers.get("authorization")
        if id not in self.stored or not (is_mine or self.does("responses are open to all callers")):
            is_bad = self.does("unknown responses are bad requests") and len(self.stored) > 0
            raise Refused(400 if is_bad else 404, "no such response")
        return self.stored[id]

    def _get(self, request: Request, id: str) -> Answer:
        response = self._find(request, id)
        if request.query.get("stream") == "true":
            self.raise_if("streams are not stored", Refused(400, "no streams", "stream"))
            return Answer(stream=self._replay(id, int(request.query.get("starting_after", -1))))
        if self.does("stored responses have no output"):
            return Answer(body={**response, "output": list[Any]()})
        return Answer(body=response)

    async def _replay(self, id: str, after: int) -> AsyncGenerator[bytes]:
        for event in self.streams[id]:
            if event["sequence_number"] > after or self.does("starting_after is ignored"):
                yield self._frame(event)
        yield b"data: [DONE]\n\n"


SERVER: Final = Server(
    set="openai-responses",
    make=Responses,
    violations=VIOLATIONS,
    path="/v1",
    options=options(
        header="Authorization",
        scheme="Bearer ",
        agent="mock-1",
        plain="Hello",
        calls="call the tool",
        data="Where?",
        fail="fail",
        long="long",
        stream="stream",
    ),
    unbroken={"respond.answer": "no other requirement can pass without it; the dead server covers it"},
)
