"""Agents as MCP tools, prompts and resources, and the tool `resume_run`, which answers their questions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from babelgate.adapters.kit.client.agent_name import legal_name
from babelgate.adapters.mcp.codec.arguments import THREAD
from babelgate.adapters.mcp.codec.uris import OWN_SCHEME, UriTemplate
from babelgate.adapters.mcp.request import has_message_argument
from babelgate.canonical import AgentInfo
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import JsonObject

RESUME: Final = "resume_run"
"""Name of the tool that answers questions. If an agent has this name, an underscore is appended."""

_THREAD: Final[JsonObject] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 256,
    "description": "Name of the conversation, chosen by the caller. Calls with the same name belong to one "
    "conversation. Without a name, each call starts a new one.",
}

_MESSAGES: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "Text of the message to the agent."},
        "data": {"description": "JSON value to send with the message."},
        "files": {
            "type": "array",
            "description": "Files to send with the message.",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "mime_type": {"type": "string"},
                    "data": {"type": "string", "description": "Bytes of the file, in base64."},
                    "uri": {"type": "string", "description": "URL of the file, instead of `data`."},
                },
                "additionalProperties": False,
            },
        },
        THREAD: _THREAD,
    },
    "required": ["message"],
    "additionalProperties": False,
}

QUESTION_OUTPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string"},
        "status": {"const": "input_required"},
        "interrupts": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["run_id", "status", "interrupts"],
}

_RESUME: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string", "description": "`run_id` of the result with the questions."},
        "answers": {"type": "object", "description": "Answers, by the id of their question."},
        "action": {
            "enum": ["answer", "decline", "cancel"],
            "description": "`decline` tells the agent that its questions get no answer, `cancel` ends the run.",
        },
    },
    "required": ["run_id"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class AgentTool:
    """An agent as a tool of MCP, with the schemas of its arguments and its output."""

    info: AgentInfo
    input_schema: JsonObject
    takes_messages: bool
    """True if the arguments have the gateway's schema for messages, because the agent has no input schema that a tool
    can use."""
    output_schema: JsonObject | None
    """JSON Schema of the agent's output. None: the agent has none, or a tool cannot declare it."""
    needs_task: bool
    """True if the agent's metadata have `{"mcp": {"tasks": "required"}}`. Then only clients that accept a task as a
    result can call the tool."""
    role: Literal["tool", "prompt", "resource"] = "tool"
    """Primitive of MCP that the agent is. By its metadata it is a prompt (`{"mcp": {"prompt": true}}`) or a resource
    (`{"mcp": {"resource": "docs://{page}"}}`), otherwise a tool."""
    template: UriTemplate | None = None
    """URI of the resource, which may have variables. None for an agent in another role."""

    @classmethod
    def of(cls, info: AgentInfo) -> "AgentTool":
        """Return the tool for an agent."""
        schema = info.schemas.get("input")
        input_schema = None if schema is None else _input_of(schema)
        # The output schema of a stateful agent describes its state.
        output = None if info.stateful else info.schemas.get("output")
        output_schema = output if output is not None and _is_object(output) and not _refers_inside(output) else None
        mcp = as_object(info.metadata.get("mcp"))
        needs_task = mcp.get("tasks") == "required"
        uri = mcp.get("resource")
        role: Literal["tool", "prompt", "resource"] = "prompt" if mcp.get("prompt") is True else "tool"
        template = UriTemplate(uri) if isinstance(uri, str) and uri and not uri.startswith(OWN_SCHEME) else None
        if template is not None:
            role = "resource"
        return cls(info, input_schema or _MESSAGES, input_schema is None, output_schema, needs_task, role, template)

    @property
    def description(self) -> str:
        """Description of the agent and its skills."""
        about = [self.info.description or f"The agent {self.info.name}."]
        about += [f"{skill.name}: {skill.description}" for skill in self.info.skills if skill.description]
        return "\n".join(about)

    def choices(self, argument: str, value: str) -> list[str]:
        """Return the values of an argument in the agent's input schema (`enum`, `const`, `examples`, `default`) that
        begin with `value`. Values that are not strings are left out."""
        member = as_object(as_object(self.input_schema.get("properties")).get(argument))
        values: list[object] = [member.get("const"), member.get("default")]
        for keyword in ("enum", "examples"):
            listed = member.get(keyword)
            values += cast("list[object]", listed) if isinstance(listed, list) else []
        texts = dict.fromkeys(each for each in values if isinstance(each, str))
        return [text for text in texts if text.startswith(value)]

    def encode(self) -> JsonObject:
        """Return the tool as the JSON object in a list of tools (SPEC/server/tools, Tool)."""
        tool: JsonObject = {
            "name": self.info.name,
            "description": self.description,
            "inputSchema": self.input_schema,
        }
        if self.output_schema is not None:
            # SPEC/server/tools, Output Schema: every structured result must conform, including a question.
            definitions = {
                name: value for name, value in self.output_schema.items() if name in ("$defs", "definitions")
            }
            output = {name: value for name, value in self.output_schema.items() if name not in definitions}
            tool["outputSchema"] = {"type": "object", "anyOf": [output, QUESTION_OUTPUT], **definitions}
        return tool


def decode_tool(tool: JsonObject) -> AgentInfo | None:
    """Return a tool of another server as an agent, or None if it has no name. A tool with the argument `message` takes
    messages; any other one takes its arguments as data. With the argument `thread_id`, it keeps the conversation."""
    name = as_text(tool.get("name"))
    if not name:
        return None
    schema, output = as_object(tool.get("inputSchema")), as_object(tool.get("outputSchema"))
    properties = as_object(schema.get("properties"))
    schemas: JsonObject = {}
    if not has_message_argument(schema) and properties.keys() - {THREAD}:
        members = {name: each for name, each in properties.items() if name != THREAD}
        schemas["input"] = {**schema, "properties": members}
    if output and QUESTION_OUTPUT not in (output.get("anyOf") or ()):
        schemas["output"] = output
    has_files = "files" in properties
    return AgentInfo(
        name=legal_name(name),
        description=as_text(tool.get("description")) or as_text(tool.get("title")),
        input_types=("text/plain", "application/json", *(("*/*",) if has_files else ())),
        output_types=("text/plain", "application/json", "*/*"),
        schemas=schemas,
        metadata={"tool": name},
        remembers=THREAD in properties,
        takes_history=THREAD in properties,
    )


def upstream_name(info: AgentInfo) -> str:
    """Return the name of a tool on its own server."""
    return as_text(info.metadata.get("tool")) or info.name


def assume_agent(name: str) -> AgentInfo:
    """Return the description of a tool of which only the name is known."""
    return AgentInfo(
        name=legal_name(name),
        input_types=("text/plain", "application/json"),
        output_types=("text/plain", "application/json", "*/*"),
        metadata={"tool": name},
        takes_history=False,
    )


def resume_name(names: Mapping[str, object]) -> str:
    """Return the name of the tool that answers questions. It differs from `names`, the names of all other tools."""
    name = RESUME
    while name in names:
        name += "_"
    return name


def encode_resume(name: str) -> JsonObject:
    """Return the tool that answers questions as the JSON object in a list of tools."""
    return {
        "name": name,
        "description": 'Goes on with a run whose result had the status "input_required".',
        "inputSchema": _RESUME,
    }


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _input_of(schema: JsonObject) -> JsonObject | None:
    """Return an agent's input schema with the member `thread_id` added, as the schema of the tool's arguments. Return
    None if the agent takes messages, or any object."""
    members: object = schema.get("properties")
    if not _is_object(schema) or not isinstance(members, dict) or "messages" in members:
        return None
    # An object without named members accepts any, unless additionalProperties is false.
    if not members and schema.get("additionalProperties") is not False:
        return None
    return {**schema, "properties": {THREAD: _THREAD, **members}}


def _refers_inside(schema: Any) -> bool:
    """Return True if the schema contains a `$ref` to a location outside of its definitions. Such a reference would be
    wrong after the schema is nested in the tool's schema."""
    if isinstance(schema, dict):
        members = cast("JsonObject", schema)
        ref: object = members.get("$ref")
        if isinstance(ref, str) and not ref.startswith(("#/$defs/", "#/definitions/")):
            return True
        return any(_refers_inside(each) for each in members.values())
    return isinstance(schema, list) and any(_refers_inside(each) for each in cast("list[Any]", schema))
