"""Questions of agents and their answers, as chunks of an assistant message."""

from typing import Final

from babelgate.adapters.vercel_ui import wire as w
from babelgate.adapters.vercel_ui.codec import (
    ASK,
    Decisions,
    approved_tool,
    arguments_of,
    called_part,
    decisions_of,
    question_members,
    question_text,
)
from babelgate.adapters.vercel_ui.write.view import ReplyView
from babelgate.canonical.event import InterruptAnswered, InterruptRaised
from babelgate.canonical.json import as_object

_REFUSALS: Final = {"decline": "Declined.", "superseded": "Not answered."}


class Questions:
    """Encoder of the questions in one assistant message, and of their answers.

    - An approval is a tool call that the page has to approve. SDK 5 has no approvals, and some need more than a yes or
      a no: the next rules apply to those.
    - A question that is a call of a page's tool is sent as that call.
    - Any other question is a call of `ask_caller` if the page declares this tool, and otherwise text.
    """

    def __init__(self, view: ReplyView) -> None:
        self.can_ask = False
        """True if the request that created the newest run declares the tool `ask_caller`."""
        self._sdk = view.sdk
        self._open_tools: dict[str, Decisions | None] = {}
        """Open questions that were sent as tool calls, by question id. The value is that of an approval's answers; None
        for any other question."""

    @property
    def has_open_tool(self) -> bool:
        """True if a question that was sent as a tool call is not answered yet."""
        return bool(self._open_tools)

    def ask(self, event: InterruptRaised) -> list[w.Chunk]:
        """Return the chunks that show a question."""
        question_id, part = event.interrupt_id or "", called_part(event)
        decisions = decisions_of(event.answer_schema) if event.ask == "approval" and self._sdk >= 6 else None
        if decisions is not None:
            return self._approval(event, question_id, decisions)
        if part is not None:
            return [self._call(question_id, part.name, arguments_of(part))]
        if self.can_ask:
            return [self._call(question_id, ASK, {"question": event.message.text, **question_members(event)})]
        return self._text(event, question_id)

    def answer(self, event: InterruptAnswered) -> list[w.Chunk]:
        """Return the chunks that end the tool call of an answered question. Empty for a question that was sent as
        text."""
        call_id = event.interrupt_id
        if call_id not in self._open_tools:
            return []
        decisions = self._open_tools.pop(call_id)
        is_approval = decisions is not None
        is_approved = event.action == "answer" and not (decisions is not None and _is_refusal(event, decisions))
        chunks: list[w.Chunk] = []
        if is_approval and self._sdk >= 7:
            chunks.append({"type": "tool-approval-response", "approvalId": call_id, "approved": is_approved})
        if is_approved:
            return [*chunks, {"type": "tool-output-available", "toolCallId": call_id, "output": event.value}]
        if is_approval:
            return [*chunks, {"type": "tool-output-denied", "toolCallId": call_id}]
        words = _REFUSALS.get(event.action, "Declined.")
        return [{"type": "tool-output-error", "toolCallId": call_id, "errorText": words}]

    def _call(self, question_id: str, name: str, arguments: object) -> w.Chunk:
        self._open_tools[question_id] = None
        return {"type": "tool-input-available", "toolCallId": question_id, "toolName": name, "input": arguments}

    def _approval(self, event: InterruptRaised, question_id: str, decisions: Decisions) -> list[w.Chunk]:
        name, arguments = approved_tool(event)
        call = {**self._call(question_id, name, arguments), "dynamic": True}
        self._open_tools[question_id] = decisions
        request: w.Chunk = {"type": "tool-approval-request", "approvalId": question_id, "toolCallId": question_id}
        text = self._text(event, question_id) if event.message.text else []
        return [*text, call, request]

    @staticmethod
    def _text(event: InterruptRaised, question_id: str) -> list[w.Chunk]:
        part_id = f"{question_id}.question"
        mark = {w.OWN: {"question": {"id": question_id, **question_members(event)}}}
        return [
            {"type": "text-start", "id": part_id, "providerMetadata": mark},
            {"type": "text-delta", "id": part_id, "delta": question_text(event)},
            {"type": "text-end", "id": part_id},
        ]


def _is_refusal(event: InterruptAnswered, decisions: Decisions) -> bool:
    """Return True if the value that answers an approval is the one that refuses under its schema, or is false, or is an
    object whose only member is false."""
    value = event.value
    values = list(as_object(value).values())
    is_no = decisions.no is not None and value == decisions.no
    return is_no or value is False or (len(values) == 1 and values[0] is False)
