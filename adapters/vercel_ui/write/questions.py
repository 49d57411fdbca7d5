"""Questions of agents, as parts of a message, and their answers."""

from typing import Final

from babelgate.adapters.vercel_ui import wire as w
from babelgate.adapters.vercel_ui.codec import (
    ASK,
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
    """Questions of one message.

    - A call of a tool of the page is that call.
    - An approval is a call that the page has to approve. SDK 5 has no approvals.
    - Any other question is a call of `ask_caller` if the page declares it, and else text.
    """

    def __init__(self, view: ReplyView) -> None:
        self.can_ask = False
        """True if the page of the newest run declares `ask_caller`."""
        self._sdk = view.sdk
        self._open_tools: dict[str, bool] = {}
        """Open questions that are shown as calls: True for an approval, by id."""

    @property
    def has_open_tool(self) -> bool:
        """True if a question that is shown as a call is open."""
        return bool(self._open_tools)

    def ask(self, event: InterruptRaised) -> list[w.Chunk]:
        """Return the chunks of a question."""
        question_id, part = event.interrupt_id or "", called_part(event)
        if event.ask == "approval" and self._sdk >= 6 and decisions_of(event.answer_schema) is not None:
            return self._approval(event, question_id)
        if part is not None:
            return [self._call(question_id, part.name, arguments_of(part))]
        if self.can_ask:
            return [self._call(question_id, ASK, {"question": event.message.text, **question_members(event)})]
        return self._text(event, question_id)

    def answer(self, event: InterruptAnswered) -> list[w.Chunk]:
        """Return the chunks of an answer. A question that was shown as text has none."""
        is_approval = self._open_tools.pop(event.interrupt_id, None)
        if is_approval is None:
            return []
        call_id = event.interrupt_id
        is_approved = event.action == "answer" and not (is_approval and _is_refusal(event))
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
        self._open_tools[question_id] = False
        return {"type": "tool-input-available", "toolCallId": question_id, "toolName": name, "input": arguments}

    def _approval(self, event: InterruptRaised, question_id: str) -> list[w.Chunk]:
        name, arguments = approved_tool(event)
        call = {**self._call(question_id, name, arguments), "dynamic": True}
        self._open_tools[question_id] = True
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


def _is_refusal(event: InterruptAnswered) -> bool:
    """Return True if the value of an answer to an approval is a no."""
    value = event.value
    values = list(as_object(value).values())
    return value is False or (len(values) == 1 and values[0] is False)
