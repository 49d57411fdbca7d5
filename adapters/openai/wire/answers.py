"""Responses of OpenAI-compatible servers, with the members that the gateway reads: chat completions, responses, models.

Names are those of the API. All members are optional, because compatible servers leave members out. Unknown members are
kept.
"""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from babelgate.canonical.value import Json, JsonObject

_Index = Annotated[int, BeforeValidator(lambda value: 0 if value is None else value)]
_Word = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""Text for which null counts as empty, because some servers send null instead of leaving the member out."""


class _Wire(BaseModel):
    model_config = ConfigDict(extra="allow")


class Error(_Wire):
    message: str | None = None
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class ErrorBody(_Wire):
    error: Error | str | None = None


class Model(_Wire):
    id: str
    owned_by: str | None = None


class Models(_Wire):
    data: list[Model]


# Chat completions


class Function(_Wire):
    name: str | None = None
    arguments: Json = None
    """Arguments as text, as in OpenAI's API, or as an object, as some servers send them."""
    input: str | None = None
    """Input of a custom tool, instead of arguments."""


class ToolCall(_Wire):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    custom: Function | None = None


class Annotation(_Wire):
    type: _Word = ""
    url: str | None = None
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None
    url_citation: JsonObject | None = None
    """Members of a citation in chat completions. In responses they are members of the annotation itself."""


class Delta(_Wire):
    """The `delta` of a chunk, or the `message` of a whole completion."""

    content: str | list[JsonObject] | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None
    annotations: list[Annotation] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    """Alternative name of `reasoning_content`. Neither is OpenAI's. Some servers send an object here."""


class Choice(_Wire):
    index: _Index = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None


class Completion(_Wire):
    """A whole `chat.completion`, or one `chat.completion.chunk` of a stream."""

    id: Any = None
    model: Any = None
    choices: list[Choice] | None = None
    usage: JsonObject | None = None


# Responses


class Content(_Wire):
    """A content part of an output item."""

    type: _Word = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[Annotation] | None = None


class Summary(_Wire):
    text: _Word = ""


class Item(_Wire):
    """An output item. Its `type` determines which of the members it has."""

    type: _Word = ""
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    content: list[Content] | None = None
    summary: list[Summary] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Json = None
    input: str | None = None
    output: Json = None
    error: Json = None
    server_label: str | None = None
    result: str | None = None
    """Image that the server's image generation produced, as base64."""
    output_format: str | None = None


class Incomplete(_Wire):
    reason: str | None = None


class Response(_Wire):
    id: str | None = None
    status: str | None = None
    output: list[Item] | None = None
    error: Error | None = None
    incomplete_details: Incomplete | None = None
    usage: JsonObject | None = None
    previous_response_id: str | None = None
    store: bool | None = None


class Event(_Wire):
    """One event of a response's stream."""

    type: str
    response: Response | None = None
    item: Item | None = None
    part: Content | None = None
    annotation: Annotation | None = None
    item_id: str | None = None
    output_index: _Index = 0
    content_index: _Index = 0
    summary_index: _Index = 0
    delta: Json = None
    text: str | None = None
    refusal: str | None = None
    error: Error | str | None = None
    message: str | None = None
    code: str | int | None = None
    param: str | None = None
