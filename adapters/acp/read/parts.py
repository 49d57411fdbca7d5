"""Reading of the parts of a message: texts, files, artifacts, and tool calls."""

from typing import Any, Final

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.carries import VERSION
from babelgate.adapters.acp.codec.parts import decode_part, own_of, unwrap_value
from babelgate.adapters.acp.errors import decode_fault
from babelgate.adapters.acp.read.gateway_members import (
    decode_artifact,
    place_of,
    split_artifact,
    text_member,
    with_blob,
)
from babelgate.adapters.acp.read.open_message import OpenWireMessage
from babelgate.adapters.acp.read.run_state import RunState
from babelgate.adapters.acp.read.tools import ToolReader
from babelgate.canonical import Feature, FilePart, RefusalPart, TextPart, ToolCallPart, ToolResultPart
from babelgate.canonical.event import ArtifactAdded, StepStarted, ToolEnded, ToolStarted
from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

_UNKNOWN_METADATA: Final = f"metadata of a kind that ACP {VERSION} does not have"
_NO_CONTENT: Final = "an artifact without content"
_NAMELESS: Final = "the input of a tool without a name"


class PartReader:
    """Reader of the parts in one run's messages. It adds their events to the run."""

    __slots__ = ("_message", "_run", "_tools")

    def __init__(self, run: RunState, message: OpenWireMessage, tools: ToolReader) -> None:
        self._run = run
        self._message = message
        self._tools = tools

    def read(self, part: w.MessagePart) -> None:
        """Add the canonical events for a wire part. Raises invalid for content that is not valid base64."""
        run, message = self._run, self._message
        run.has_output = True
        if message.part_count >= 0:
            message.part_count += 1
        self.lose_metadata(part)
        members = own_of(part)
        if isinstance(part.metadata, w.Trajectory) and self._read_marked(part.metadata, members):
            return
        kind = members.get("kind")
        if kind == "output":  # no message of the agent: the end of the run contains it
            return
        # SDK 1.0.3: an Artifact is a MessagePart with a name.
        if part.name is not None and kind != "file":
            self._read_artifact(part, part.name, members)
            return
        tool: ToolCallPart | None = None
        for decoded in decode_part(part):
            match decoded:
                case ToolCallPart() if kind is None:
                    tool = decoded
                case ToolResultPart() if tool is not None:
                    pass
                case TextPart() | RefusalPart() if "acp" not in decoded.extra and not decoded.metadata:
                    message.say(decoded)
                case FilePart():
                    message.add(with_blob(decoded, members))
                case _:
                    message.add(decoded)
        if tool is not None and isinstance(part.metadata, w.Trajectory):
            message.show()
            self._tools.read(part.metadata, tool)

    def lose_metadata(self, part: w.MessagePart) -> None:
        """Report a loss for each kind of content in a part's metadata that the canonical model cannot contain."""
        metadata = part.metadata
        if isinstance(metadata, dict):
            if metadata:
                self._run.lose(Feature.CUSTOM, _UNKNOWN_METADATA)
            return
        if metadata is not None and metadata.model_extra:
            self._run.lose(Feature.CUSTOM, f"fields of a {metadata.kind} that ACP {VERSION} does not have")
        if isinstance(metadata, w.Trajectory) and metadata.tool_name is None and metadata.tool_input is not None:
            self._run.lose(Feature.TOOL_ACTIVITY, _NAMELESS)

    def _read_marked(self, step: w.Trajectory, members: JsonObject) -> bool:
        """Add the canonical events for a trajectory that another gateway has written: progress, a tool call, or the
        start of a step. `members` are those that it added. Return False for any other trajectory."""
        events = self._run.events
        match members.get("kind"):
            case "progress":
                self._message.add_progress(step.message or "")
            case "tool":
                call_id, name, output = text_member(members, "call_id"), step.tool_name or "", step.tool_output
                tool_input = None if step.tool_input is None else unwrap_value(step.tool_input)
                fault = decode_fault(members.get("fault"))
                result = None if output is None or fault is not None else unwrap_value(output)
                events.append(ToolStarted(call_id=call_id, name=name, input=tool_input))
                events.append(ToolEnded(call_id=call_id, name=name, output=result, fault=fault))
            case "step":
                events.append(StepStarted(name=step.message or "", input=members.get("input"), **place_of(members)))
            case _:
                return False
        return True

    def _read_artifact(self, part: w.MessagePart, name: str, members: JsonObject) -> None:
        self._message.show()
        # Legal (components.schemas.MessagePart: "or neither").
        if part.content is None and part.content_url is None:
            self._run.lose(Feature.ARTIFACT, _NO_CONTENT)
        fields: dict[str, Any] = {
            "artifact_id": text_member(members, "artifact_id"),
            "name": name or None,
            "description": text_member(members, "description"),
            "folder": text_member(members, "folder"),
            "metadata": as_object(members.get("labels")),
        }
        for decoded in decode_part(part):
            content = decoded
            if isinstance(content, FilePart):
                file_name = text_member(members, "file_name") or content.name or name or None
                content = decode_artifact(with_blob(content.replace(name=file_name), members), members.get("content"))
            pieces = split_artifact(content, members.get("pieces"))
            for index, piece in enumerate(pieces):
                append = index > 0 or members.get("continues") is True
                last = index == len(pieces) - 1 and members.get("more") is not True
                self._run.events.append(ArtifactAdded(part=piece, append=append, last=last, **fields))
