"""Tool calls of an agent, with the changes that they make to files → canonical events."""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.codec.content import BLOCKS, PROTOCOL, decode_block, own_members
from babelgate.adapters.agent_client.errors import decode_fault
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import Event, Fault, FaultCode, Feature, FilePart, TextPart
from babelgate.canonical.event import ArtifactAdded, LossNoted, ToolEnded, ToolStarted
from babelgate.canonical.json import as_list, as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

_FINAL: Final = frozenset({"completed", "failed"})
_UNFINISHED: Final = Fault(
    code=FaultCode.AGENT_FAILED, message="The agent ended its turn without a result of this call."
)
_FAILED: Final = "The tool failed."
_WAITING: Final = "The agent waits for a permission."
"""Output of a call in the run in which the agent asks for its permission. Its result is in the next run."""
_LATE: Final = LossNoted(feature=Feature.TOOL_ACTIVITY, how="an update of a tool call after its end")
_CONTEXT: Final = 3
"""Number of unchanged lines before and after a change in a diff."""
DIFF_TYPE: Final = "text/x-diff"


@dataclass(slots=True)
class _Call:
    """Newest state of a tool call."""

    call_id: str
    members: JsonObject = field(default_factory=dict[str, Any])
    """Members of the wire's tool call, the newest value of each."""
    is_started: bool = False
    has_ended: bool = False

    @property
    def name(self) -> str:
        return as_text(self.members.get("name")) or as_text(self.members.get("title")) or "tool"


class ToolCallReader:
    """Decoder of the tool calls of one turn. It passes canonical events to `add`. `terminal_text` returns the output of
    a terminal by its id, and None for an unknown one."""

    def __init__(
        self, add: Callable[[Event], None], terminal_text: Callable[[str], str | None], folder: str = ""
    ) -> None:
        """Create a decoder. Callers see paths below `folder` relative to it."""
        self._add = add
        self._folder = folder
        self._terminal_text = terminal_text
        self._calls: dict[str, _Call] = {}

    def read(self, update: w.Update) -> None:
        """Read a `tool_call` or a `tool_call_update`. An update may come without a call before it. Raises invalid for
        malformed content."""
        call = self._merge(update)
        if call is None:
            return
        if call.has_ended:
            self._add(_LATE)
            return
        status = call.members.get("status")
        if status == "in_progress" or status in _FINAL:
            self._start(call)
        if status in _FINAL:
            self._end(call, own_members(update))
            call.members.clear()  # its content may be large

    def describe(self, update: w.Update) -> JsonObject:
        """Merge the tool call of a permission request into the known state of that call, and return the merged
        members."""
        call = self._merge(update)
        return update if call is None else call.members

    def _merge(self, update: w.Update) -> _Call | None:
        call_id = as_text(update.get("toolCallId"))
        if not call_id:
            return None
        call = self._calls.setdefault(call_id, _Call(call_id))
        # A member that is absent or null has not changed, and a list is replaced whole.
        call.members |= {name: value for name, value in update.items() if value is not None and name != "sessionUpdate"}
        return call

    def _start(self, call: _Call) -> None:
        if call.is_started:
            return
        call.is_started = True
        names = ("title", "kind", "locations")
        extra = {name: call.members[name] for name in names if name in call.members}
        self._add(
            ToolStarted(
                call_id=call.call_id, name=call.name, input=call.members.get("rawInput"), extra={PROTOCOL: extra}
            )
        )

    def _end(self, call: _Call, marks: JsonObject) -> None:
        call.has_ended = True
        if call.members.get("status") == "completed":
            output = self._output(call)
            self._add(ToolEnded(call_id=call.call_id, name=call.name, output=output))
            for artifact in _artifacts(call, self._folder):
                self._add(artifact)
            return
        members = as_object(marks.get("fault"))
        text = _fault_text(self._output(call)) or _FAILED
        fault = decode_fault(members) if members else Fault(code=FaultCode.AGENT_FAILED, message=text)
        self._add(ToolEnded(call_id=call.call_id, name=call.name, fault=fault))

    def _output(self, call: _Call) -> Json:
        """Return the result of a call: its raw output, its texts, or an object of both if they differ."""
        texts: list[str] = []
        for item in objects_in(call.members.get("content")):
            block = as_object(item.get("content"))
            if item.get("type") == "content" and block.get("type") == "text":
                texts.append(as_text(block.get("text")))
            elif item.get("type") == "terminal":
                texts.append(self._terminal_text(as_text(item.get("terminalId"))) or "")
        text, raw = "\n".join(each for each in texts if each), call.members.get("rawOutput")
        if raw is None:
            return text or None
        whole = raw if isinstance(raw, str) else json_text(raw)
        return raw if not text or text in whole else {"output": raw, "text": text}

    def pause(self, waiting: Container[str]) -> None:
        """End the running calls before the run pauses for a permission. `waiting` has the ids of the calls that need
        one. Each ended call starts again with its next update, in the next run."""
        for call in self._calls.values():
            if call.is_started and not call.has_ended:
                call.is_started = False
                output = _WAITING if call.call_id in waiting else None
                self._add(ToolEnded(call_id=call.call_id, name=call.name, output=output))

    def close(self) -> None:
        """End all calls that the agent has left open at the end of its turn."""
        for call in self._calls.values():
            if not call.has_ended:
                self._start(call)
                call.has_ended = True
                self._add(ToolEnded(call_id=call.call_id, name=call.name, fault=_UNFINISHED))


def _fault_text(output: Json) -> str:
    return output if isinstance(output, str) else "" if output is None else json_text(output)


def _artifacts(call: _Call, folder: str) -> Iterator[ArtifactAdded]:
    """Yield the files in the content of a completed call, and a diff for each file that it has changed. The paths of
    files in `folder` are relative to it."""
    for number, item in enumerate(as_list(call.members.get("content"))):
        content = as_object(item)
        block = as_object(content.get("content"))
        artifact_id = f"{call.call_id}-{number}"
        if content.get("type") == "diff":
            path, old, new = (as_text(content.get(name)) for name in ("path", "oldText", "newText"))
            path = path.removeprefix(f"{folder}/") if folder else path
            is_new = content.get("oldText") is None
            text = diff_text(path, None if is_new else old, new)
            part = TextPart(text=text, media_type=DIFF_TYPE)
            metadata: JsonObject = {"path": path, "new": is_new}
            yield ArtifactAdded(artifact_id=artifact_id, name=path or None, part=part, metadata=metadata)
        elif content.get("type") == "content" and block.get("type") in BLOCKS - {"text"}:
            part = decode_block(block, "content")
            name = part.name if isinstance(part, FilePart) else None
            yield ArtifactAdded(artifact_id=artifact_id, name=name, part=part)


def diff_text(path: str, old: str | None, new: str) -> str:
    """Return the change of a file as a unified diff with one hunk. `old` is None for a new file.

    The hunk extends from the first changed line to the last. So the time is linear in the length of the texts.
    """
    before, after = _lines(old or ""), _lines(new)
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    first, last = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
    removed, added = before[start : len(before) - end], after[start : len(after) - end]
    head = before[first:start]
    tail = before[len(before) - end : len(before) - last]
    ranges = [
        f"{first + 1 if count else first},{count}"
        for count in (len(head) + len(removed) + len(tail), len(head) + len(added) + len(tail))
    ]
    lines = [f"--- {'/dev/null' if old is None else path}\n", f"+++ {path}\n", f"@@ -{ranges[0]} +{ranges[1]} @@\n"]
    for mark, group in ((" ", head), ("-", removed), ("+", added), (" ", tail)):
        lines += [mark + line for line in group]
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines of a text with their line feeds. Other line breaks are parts of a line, as in `diff`."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
