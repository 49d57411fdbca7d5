"""JSON of threads, runs and stream events of the scripted LangGraph Platform server."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID, uuid4, uuid5

from tests.conformance.servers.langchain_commands import Commands
from tests.conformance.servers.langchain_work import Message, Refused, Run, State, Thread

GRAPHS: Final = ("first", "second")
_NAMESPACE: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")


def assistant_id(graph: str) -> str:
    return str(uuid5(_NAMESPACE, graph))


class Views(Commands):
    def error(self, status: int, text: str) -> Refused:
        return Refused(status, {"error": text} if self.does("errors have no detail") else {"detail": text})

    def message_view(self, message: Message) -> Any:
        type = "assistant" if self.does("messages have roles") and message["role"] == "ai" else message["role"]
        return {"type": type, "content": self.text(message), "id": message["id"]}

    # Questions

    def interrupts(self, state: State | None) -> list[dict[str, Any]]:
        if state is None:
            return []
        found = [{"value": text, "id": f"{state.id}-{number}"} for number, text in enumerate(state.asks)]
        if self.does("questions have numbers"):
            return [{**each, "id": number} for number, each in enumerate(found)]
        if self.does("questions have no value"):
            return [{"id": each["id"], "text": each["value"]} for each in found]
        return found

    def task_of(self, state: State) -> str:
        return str(uuid5(_NAMESPACE, state.id))

    # Threads

    def thread_view(self, thread: Thread) -> dict[str, Any]:
        status = "waiting" if self.does("threads wait") and thread.status == "interrupted" else thread.status
        last = thread.states[-1] if thread.states else None
        view: dict[str, Any] = {
            "thread_id": thread.id,
            "created_at": thread.created,
            "updated_at": thread.updated,
            "state_updated_at": thread.updated,
            "metadata": thread.metadata,
            "status": status,
            "config": {},
            "values": self.values_view(last) if last else None,
            "interrupts": {self.task_of(last): self.interrupts(last)} if last and last.asks else {},
            "error": None if self.does("threads show no errors") else thread.extra.get("error"),
        }
        self.set_if("threads have no messages", view, values={})
        self.set_if("threads show no questions", view, interrupts={})
        self.drop_if("threads have no date", view, "updated_at")
        return view

    def state_view(self, thread: Thread, state: State | None) -> dict[str, Any]:
        if state is None:
            return {
                **{"values": {}, "next": ["__start__"] if self.does("new threads have something next") else []},
                **{"tasks": [], "metadata": None, "created_at": None, "checkpoint": None},
                **{"parent_checkpoint": None, "interrupts": []},
            }
        view: dict[str, Any] = {
            "values": self.values_view(state),
            "next": state.next,
            "tasks": [self.task_view(state)] if state.next else [],
            "metadata": state.metadata,
            "created_at": state.created,
            "checkpoint": self.checkpoint(thread, state.id),
            "parent_checkpoint": self.checkpoint(thread, state.parent) if state.parent else None,
            "interrupts": [] if self.does("states show no questions") else self.interrupts(state),
        }
        self.set_if("states have no parents", view, parent_checkpoint=None)
        self.drop_if("states have no tasks", view, "tasks")
        return view

    def task_view(self, state: State) -> dict[str, Any]:
        view = {
            "id": self.task_of(state),
            "name": state.next[0],
            "error": None,
            "interrupts": [] if self.does("tasks show no questions") else self.interrupts(state),
        }
        return {**view, "name": None} if self.does("tasks have no name") else view

    def checkpoint(self, thread: Thread, id: str) -> dict[str, Any]:
        return {"checkpoint_id": id, "thread_id": thread.id, "checkpoint_ns": ""}

    # Runs

    def run_view(self, run: Run) -> dict[str, Any]:
        status = "success" if run.status == "asking" and not self.does("runs that ask are asking") else run.status
        if run.status == "asking" and self.does("runs that ask are interrupted"):
            status = "interrupted"
        view: dict[str, Any] = {
            "run_id": run.id,
            "thread_id": str(uuid4()) if self.does("runs name another thread") else run.thread.id,
            "assistant_id": run.agent,
            "created_at": run.created,
            "updated_at": run.created,
            "status": status,
            "metadata": {} if self.does("metadata of runs is lost") else run.body.get("metadata") or {},
            "kwargs": {} if self.does("inputs of runs are lost") else {"input": run.body.get("input")},
            "multitask_strategy": run.body.get("multitask_strategy", "enqueue"),
        }
        self.drop_if("runs have no date", view, "created_at")
        return view

    def wait_view(self, run: Run) -> dict[str, Any]:
        if run.status == "error" and not self.does("a wait reports no failure"):
            return {"__error__": {"error": "ValueError", "message": "it failed"}}
        last = run.thread.states[-1] if run.thread.states else None
        values = self.values_view(last)
        if last and last.asks and run.status == "asking" and not self.does("a wait reports no question"):
            values["__interrupt__"] = self.interrupts(last)
        return {**self.run_view(run), "values": values} if self.does("a wait answers with the run") else values

    # Streams

    def node(self, run: Run) -> str:
        return "agent"

    def stops_early(self, run: Run) -> bool:
        return run.body.get("interrupt_before") == "*" and not self.does("runs do not stop")

    def mode(self, event: str) -> str:
        if event == "messages":
            return "messages-tuple"
        return event.partition("/")[0]

    def piece_metadata(self, run: Run) -> Any:
        return {} if self.does("pieces name no node") else {"langgraph_node": self.node(run)}

    def on_state(self, run: Run, state: State) -> None:
        config = {"configurable": {"checkpoint_id": state.id}}
        checkpoint = {"config": config, "values": self.values_view(state), "next": state.next}
        if not self.does("the first checkpoint is not streamed") or not state.next:
            self.frame(run, "checkpoints", checkpoint)
        event = {"event": "on_chain_stream", "name": self.node(run), "run_id": run.id}
        self.frame(run, "events", event if self.does("events have no data") else {**event, "data": {}})
        self.frame(run, "debug", {"type": "checkpoint", "step": 0, "payload": checkpoint})
        if state.next and self.does("values begin with the answer"):
            return
        super().on_state(run, state)
        if state.next:
            self.on_task(run, {"input": self.values_view(state)})

    def on_task(self, run: Run, more: dict[str, Any]) -> None:
        task = {"id": run.id, "name": self.node(run), **more}
        is_result = "result" in more
        if not (is_result and self.does("results of tasks are not streamed")):
            self.frame(run, "tasks", task)
        if not (is_result and self.does("debug shows no results")):
            self.frame(run, "debug", {"type": "task_result" if is_result else "task", "step": 1, "payload": task})

    def stream_message(self, run: Run, message: Message, words: Sequence[str]) -> None:
        piece = {**message, "id": str(uuid4())} if self.does("pieces have other ids") else message
        if self.does("pieces are alone"):
            for word in words:
                self.frame(run, "messages", self.message_view({**piece, "text": word}))
        else:
            super().stream_message(run, piece, words)
        if not self.does("messages have no metadata"):
            self.frame(run, "messages/metadata", {message["id"]: {"metadata": self.piece_metadata(run)}})
        for number in range(1, len(words) + 1):
            text = words[number - 1] if self.does("partial messages are pieces") else " ".join(words[:number])
            self.frame(run, "messages/partial", [self.message_view({**message, "text": text})])
        self.on_task(run, {"result": {"messages": [self.message_view(message)]}})

    def say(self, run: Run, words: Sequence[str]) -> None:
        super().say(run, words)
        if self.does("answered questions stay"):
            run.thread.status = "interrupted"

    def frame(self, run: Run, event: str, data: Any) -> None:
        if event == "updates" and self.does("updates have no node"):
            data = data.get(self.node(run), data)
        if event == "error" and self.does("errors of streams are texts"):
            data = "it failed"
        super().frame(run, event, data)

    def ask(self, run: Run, questions: list[str]) -> None:
        state = run.thread.states[-1]
        state.asks = questions
        interrupts = {"__interrupt__": self.interrupts(state)}
        if not self.does("values show no question"):
            self.frame(run, "values", {**self.values_view(state), **interrupts})
        if not self.does("updates show no question"):
            self.frame(run, "updates", interrupts)
        super().ask(run, questions)

    def fail(self, run: Run) -> None:
        run.thread.extra["error"] = {"error": "ValueError", "message": "it failed"}
        super().fail(run)
