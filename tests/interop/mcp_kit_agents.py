"""Agents for the tools that the MCP conformance suite expects of a server.

The suite's descriptions of its scenarios define what each tool does. The docstrings are the tools' descriptions.
"""

import asyncio
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final

from babelgate.canonical import (
    AgentInfo,
    Ask,
    FaultCode,
    FaultError,
    FilePart,
    Invocation,
    Message,
    Step,
    TextPart,
    UseTool,
)
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.value import JsonObject

AGENTS: Final[dict[str, Callable[..., Any]]] = {}

_NO_ARGUMENTS: Final[JsonObject] = {"type": "object", "properties": {}, "additionalProperties": False}
_PNG: Final = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
_WAV: Final = b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0@\x1f\0\0\1\0\x08\0data\0\0\0\0"
_LATER: Final = 3.0
"""Delay after which a call has become a task, in seconds."""

_Agent = Callable[..., Any]


def _tool(takes: JsonObject = _NO_ARGUMENTS, **metadata: Any) -> Callable[[_Agent], _Agent]:
    def add(agent: _Agent) -> _Agent:
        schemas = {"input": takes}
        agent.info = AgentInfo(  # pyright: ignore[reportFunctionMemberAccess]
            name=agent.__name__, description=agent.__doc__ or "", schemas=schemas, metadata=metadata
        )
        AGENTS[agent.__name__] = agent
        return agent

    return add


def _object(**members: str) -> JsonObject:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in members.items()}}


def _form(*required: str, **members: Mapping[str, Any]) -> JsonObject:
    return {"type": "object", "properties": members, "required": list(required)}


def _arguments(call: Invocation) -> Mapping[str, Any]:
    data = call.data
    assert isinstance(data, Mapping)
    return data


_NAME: Final = _form("name", name={"type": "string"})
_OK: Final = _form("ok", ok={"type": "boolean"})


def _question(key: str, question: str, schema: JsonObject) -> InterruptRaised:
    """Return a question whose id the agent chooses."""
    return InterruptRaised(interrupt_id=key, message=Message.of(question), answer_schema=schema)


# Content of results


@_tool()
async def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@_tool()
async def test_image_content() -> FilePart:
    """Return an image."""
    return FilePart(name="red.png", media_type="image/png", inline=_PNG)


@_tool()
async def test_audio_content() -> FilePart:
    """Return audio."""
    return FilePart(name="silence.wav", media_type="audio/wav", inline=_WAV)


@_tool()
async def test_embedded_resource() -> FilePart:
    """Return a file."""
    return FilePart(name="embedded", media_type="text/plain", inline=b"This is an embedded resource content.")


@_tool()
async def test_multiple_content_types() -> Message:
    """Return text, an image and a file."""
    image = FilePart(name="red.png", media_type="image/png", inline=_PNG)
    data = FilePart(name="mixed", media_type="application/json", inline=b'{"test": "data", "value": 123}')
    return Message(parts=(TextPart(text="Multiple content types test:"), image, data))


@_tool()
async def test_error_handling() -> None:
    """Fail."""
    raise RuntimeError("This tool intentionally returns an error for testing")


@_tool()
async def test_tool_with_progress() -> AsyncGenerator[Step | str]:
    """Report three steps."""
    yield Step("begin")
    yield Step("go on")
    yield Step("end")
    yield "Done."


@_tool()
async def test_tool_with_logging() -> AsyncGenerator[Message | str]:
    """Send progress messages."""
    yield Message.of("Tool execution started", phase="progress")
    yield Message.of("Tool processing data", phase="progress")
    yield Message.of("Tool execution completed", phase="progress")
    yield "Done."


AGENTS["test_logging_tool"] = test_tool_with_logging


@_tool(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool() -> str:
    """Accept an input schema with many keywords."""
    return "It fits."


# Questions during a call


@_tool(_object(message="string"))
async def test_elicitation(call: Invocation) -> AsyncGenerator[Ask | str, Any]:
    """Ask for a user name and an address."""
    schema = _form("username", "email", username={"type": "string"}, email={"type": "string"})
    answer = yield Ask(_arguments(call)["message"], schema=schema)
    yield f"User response: {answer}"


@_tool()
async def test_elicitation_sep1034_defaults() -> AsyncGenerator[Ask | str, Any]:
    """Ask with a form that has defaults."""
    schema = _form(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    answer = yield Ask("Who are you?", schema=schema)
    yield f"Elicitation completed: {answer}"


@_tool()
async def test_elicitation_sep1330_enums() -> AsyncGenerator[Ask | str, Any]:
    """Ask with a form that has every kind of choice."""
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": title} for n, title in enumerate(("First", "Second", "Third"), start=1)]
    legacy = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}
    schema = _form(
        untitledSingle={"type": "string", "enum": options},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", **legacy},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": options}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    answer = yield Ask("Which?", schema=schema)
    yield f"Elicitation completed: {answer}"


def _sample(prompt: str) -> UseTool:
    content = {"type": "text", "text": prompt}
    return UseTool("sampling/createMessage", {"messages": [{"role": "user", "content": content}], "maxTokens": 100})


@_tool(_object(prompt="string"))
async def test_sampling(call: Invocation) -> AsyncGenerator[UseTool | str, Any]:
    """Ask the caller's model."""
    answer = yield _sample(_arguments(call)["prompt"])
    yield f"LLM response: {answer['content']['text']}"


# Questions as the result of a call


@_tool()
async def test_input_required_result_elicitation() -> AsyncGenerator[InterruptRaised | str, Any]:
    """Ask for a name."""
    answer = yield _question("user_name", "What is your name?", _NAME)
    yield f"Hello, {answer['name']}!"


@_tool()
async def test_input_required_result_sampling() -> AsyncGenerator[UseTool | str, Any]:
    """Ask the caller's model."""
    answer = yield _sample("What is the capital of France?")
    yield answer["content"]["text"]


@_tool()
async def test_input_required_result_list_roots() -> AsyncGenerator[UseTool | str, Any]:
    """Ask for the caller's folders."""
    answer = yield UseTool("roots/list")
    yield ", ".join(root["uri"] for root in answer["roots"])


@_tool()
async def test_input_required_result_request_state() -> AsyncGenerator[Ask | str, Any]:
    """Ask, and expect a second call."""
    yield Ask("Please confirm", schema=_OK)
    yield "state-ok"


@_tool()
async def test_input_required_result_multiple_inputs() -> AsyncGenerator[list[Ask | UseTool] | str, Any]:
    """Ask three questions at once."""
    answers = yield [Ask("What is your name?", schema=_NAME), _sample("Generate a greeting"), UseTool("roots/list")]
    yield f"{answers}"


@_tool()
async def test_input_required_result_multi_round() -> AsyncGenerator[Ask | str, Any]:
    """Ask two questions, one after the other."""
    name = yield Ask("Step 1: What is your name?", schema=_NAME)
    colour = yield Ask("Step 2: What is your favorite color?", schema=_form("color", color={"type": "string"}))
    yield f"{name} {colour}"


@_tool()
async def test_input_required_result_tampered_state() -> AsyncGenerator[Ask | str, Any]:
    """Ask, and check the state that comes back."""
    yield Ask("Please confirm", schema=_OK)
    yield "Confirmed."


@_tool()
async def test_input_required_result_capabilities() -> AsyncGenerator[UseTool | str, Any]:
    """Ask only what the caller can answer."""
    answer = yield _sample("Say anything.")
    yield answer["content"]["text"]


@_tool()
async def test_missing_capability() -> AsyncGenerator[UseTool | str, Any]:
    """Require the caller's model."""
    answer = yield _sample("Say anything.")
    yield answer["content"]["text"]


@_tool()
async def test_streaming_elicitation() -> AsyncGenerator[Step | Ask | str, Any]:
    """Ask between two steps."""
    yield Step("begin")
    yield Ask("Please confirm", schema=_OK)
    yield "Confirmed."


@_tool({**_object(region="string"), "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}})
async def test_x_mcp_header(call: Invocation) -> str:
    """Accept an argument that a header repeats."""
    return f"{call.data}"


# Tasks


@_tool(_object(name="string"))
async def greet(call: Invocation) -> str:
    """Return a greeting."""
    return f"Hello, {_arguments(call)['name']}!"


@_tool(_object(seconds="number", label="string"))
async def slow_compute(call: Invocation) -> str:
    """Wait, then answer."""
    # Twice as long as asked: the suite asks for one second, after which the gateway returns a task.
    await asyncio.sleep(2 * _arguments(call)["seconds"])
    return "Computed."


@_tool(mcp={"tasks": "required"})
async def failing_job() -> None:
    """Fail after a delay."""
    await asyncio.sleep(_LATER)
    raise RuntimeError("The job failed.")


@_tool()
async def protocol_error_job() -> None:
    """Fail with an internal fault after a delay."""
    await asyncio.sleep(_LATER)
    raise FaultError(FaultCode.INTERNAL, "The job went wrong.")


@_tool(_object(filename="string"))
async def confirm_delete() -> AsyncGenerator[Ask | str, Any]:
    """Ask before deleting."""
    await asyncio.sleep(_LATER)
    answer = yield Ask("May I delete it?", schema=_form("confirm", confirm={"type": "boolean"}))
    yield f"{answer}"


@_tool()
async def multi_input() -> AsyncGenerator[list[Ask] | str, Any]:
    """Ask two questions at once."""
    await asyncio.sleep(_LATER)
    answers = yield [Ask("First?", schema=_NAME), Ask("Second?", schema=_NAME)]
    yield f"{answers}"


@_tool(mcp={"tasks": "required"})
async def test_tool_with_task() -> AsyncGenerator[InterruptRaised | str, Any]:
    """Ask first, then wait."""
    answer = yield _question("user_name", "What is your name?", _NAME)
    await asyncio.sleep(_LATER)
    yield f"Hello, {answer['name']}!"


# Resources: the URIs that the suite reads


@_tool(mcp={"resource": "test://static-text"})
async def static_text() -> str:
    """Return the content of a text resource."""
    return "This is the content of the static text resource."


@_tool(mcp={"resource": "test://static-binary"})
async def static_binary() -> FilePart:
    """Return the content of a binary resource."""
    return FilePart(name="red.png", media_type="image/png", inline=_PNG)


@_tool(_object(id="string"), mcp={"resource": "test://template/{id}/data"})
async def template_data(call: Invocation) -> dict[str, Any]:
    """Return the data of an id."""
    key = _arguments(call)["id"]
    return {"id": key, "templateTest": True, "data": f"Data for ID: {key}"}


@_tool(mcp={"resource": "test://watched-resource"})
async def watched_resource() -> str:
    """Return the content of a resource that callers follow."""
    return "Nothing has changed."


# Prompts


@_tool(mcp={"prompt": True})
async def test_simple_prompt() -> str:
    """Return a prompt without arguments."""
    return "This is a simple prompt for testing."


@_tool(_form("arg1", "arg2", arg1={"type": "string"}, arg2={"type": "string"}), mcp={"prompt": True})
async def test_prompt_with_arguments(call: Invocation) -> str:
    """Return a prompt with its arguments."""
    arguments = _arguments(call)
    return f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'"


@_tool(_form("resourceUri", resourceUri={"type": "string"}), mcp={"prompt": True})
async def test_prompt_with_embedded_resource() -> Message:
    """Return a prompt with a file."""
    file = FilePart(name="example", media_type="text/plain", inline=b"Embedded resource content for testing.")
    return Message(parts=(file, TextPart(text="Please process the embedded resource above.")))


@_tool(mcp={"prompt": True})
async def test_prompt_with_image() -> Message:
    """Return a prompt with an image."""
    image = FilePart(name="red.png", media_type="image/png", inline=_PNG)
    return Message(parts=(image, TextPart(text="Please analyze the image above.")))


@_tool(mcp={"prompt": True})
async def test_input_required_result_prompt() -> AsyncGenerator[InterruptRaised | str, Any]:
    """Ask before the prompt is complete."""
    schema = _form("context", context={"type": "string"})
    answer = yield _question("user_context", "What context should the prompt use?", schema)
    yield f"Use this context: {answer['context']}"
