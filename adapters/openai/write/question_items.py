"""Output items of a response for the questions at which a run stopped."""

from babelgate.adapters.openai.codec.questions import (
    encode_question_item,
    question_losses,
    question_text,
    text_losses,
)
from babelgate.adapters.openai.write.items import ItemWriter
from babelgate.adapters.openai.write.open_questions import OpenQuestions
from babelgate.adapters.openai.write.run_losses import RunLosses
from babelgate.canonical.event import InterruptRaised


class QuestionItemWriter:
    """Writer of the questions at which a run stopped, as calls or as text."""

    __slots__ = ("_items", "_losses", "_run_id", "_task_id", "open")

    def __init__(self, task_id: str, run_id: str, items: ItemWriter, losses: RunLosses) -> None:
        self.open = OpenQuestions()
        self._task_id = task_id
        self._run_id = run_id
        self._items = items
        self._losses = losses

    def write_open(self) -> None:
        """Write each open question as an output item: a call, or a message with its text."""
        for question in self.open:
            if self.open.is_call(question):
                self._write_call(question)
            else:
                self._losses.add(text_losses(question))
                self._items.add_answer(f"{self._run_id}_question", question_text(question))

    def _write_call(self, question: InterruptRaised) -> None:
        for feature in question_losses(question):
            self._losses.note(feature)
        body = encode_question_item(self._task_id, question)
        match body["type"]:
            case "mcp_approval_request":
                # SPEC/responses/response_output_item.py, McpApprovalRequest: it has no status.
                self._items.add_whole({**body, "id": self._items.unique_id(body["id"])})
            case kind:
                name = "custom_tool_call_input" if kind == "custom_tool_call" else "function_call_arguments"
                member = "input" if kind == "custom_tool_call" else "arguments"
                text, body[member] = body[member], ""
                item = self._items.add(body)
                self._items.add_arguments(item, name, text)
                self._items.finish(item)
