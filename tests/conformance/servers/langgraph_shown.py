"""What the scripted server of LangGraph Platform shows of its threads and runs, and what its streams tell."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID, uuid4, uuid5

from tests.conformance.servers.langchain_commands import Commands
from tests.conformance.servers.langchain_work import Message, Refused, Run, State, Thread

GRAPHS: Final = ("first", "second")
_NAMESPACE: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")


def assistant_id(graph: str) -> str:
    return str(uuid5(_NAMESPACE, graph))


class Shown(Commands):
    def error(self, status: int, text: str) -> Refused:
        return Refused(status, {"error": text} if self.does("errors have no detail") else {"detail": text})

    def shown_message(self, message: Message) -> Any:
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

    def shown_thread(self, thread: Thread) -> dict[str, Any]:
        status = "waiting" if self.does("threads wait") and thread.status == "interrupted" else thread.status
        last = thread.states[-1] if thread.states else None
        shown: dict[str, Any] = {
            "thread_id": thread.id,
            "created_at": thread.created,
            "updated_at": thread.updated,
            "state_updated_at": thread.updated,
            "metadata": thread.metadata,
            "status": status,
            "config": {},
            "values": self.shown_values(last) if last else None,
            "interrupts": {self.task_of(last): self.interrupts(last)} if last and last.asks else {},
            "error": None if self.does("threads tell no errors") else thread.extra.get("error"),
        }
        self.set_if("threads have no messages", shown, values={})
        self.set_if("threads tell no questions", shown, interrupts={})
        self.drop_if("threads have no date", shown, "updated_at")
        return shown

    def shown_state(self, thread: Thread, state: State | None) -> dict[str, Any]:
        if state is None:
            return {
                **{"values": {}, "next": ["__start__"] if self.does("new threads have something next") else []},
                **{"tasks": [], "metadata": None, "created_at": None, "checkpoint": None},
                **{"parent_checkpoint": None, "interrupts": []},
            }
        shown: dict[str, Any] = {
            "values": self.shown_values(state),
            "next": state.next,
            "tasks": [self.shown_task(state)] if state.next else [],
            "metadata": state.metadata,
            "created_at": state.created,
            "checkpoint": self.checkpoint(thread, state.id),
            "parent_checkpoint": self.checkpoint(thread, state.parent) if state.parent else None,
            "interrupts": [] if self.does("states tell no questions") else self.interrupts(state),
        }
        self.set_if("states have no parents", shown, parent_checkpoint=None)
        self.drop_if("states have no tasks", shown, "tasks")
        return shown

    def shown_task(self, state: State) -> dict[str, Any]:
        shown = {
            "id": self.task_of(state),
            "name": state.next[0],
            "error": None,
            "interrupts": [] if self.does("tasks tell no questions") else self.interrupts(state),
        }
        return {**shown, "name": None} if self.does("tasks have no name") else shown

    def checkpoint(self, thread: Thread, id: str) -> dict[str, Any]:
        return {"checkpoint_id": id, "thread_id": thread.id, "checkpoint_ns": ""}

    # Runs

    def shown_run(self, run: Run) -> dict[str, Any]:
        status = "success" if run.status == "asking" and not self.does("runs that ask are asking") else run.status
        if run.status == "asking" and self.does("runs that ask are interrupted"):
            status = "interrupted"
        shown: dict[str, Any] = {
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
        self.drop_if("runs have no date", shown, "created_at")
        return shown

    def shown_wait(self, run: Run) -> dict[str, Any]:
        if run.status == "error" and not self.does("a wait tells no failure"):
            return {"__error__": {"error": "ValueError", "message": "it failed"}}
        last = run.thread.states[-1] if run.thread.states else None
        values = self.shown_values(last)
        if last and last.asks and run.status == "asking" and not self.does("a wait tells no question"):
            values["__interrupt__"] = self.interrupts(last)
        return {**self.shown_run(run), "values": values} if self.does("a wait answers with the run") else values

    # Streams

    def node(self, run: Run) -> str:
        return "agent"

    def stops(self, run: Run) -> bool:
        return run.body.get("interrupt_before") == "*" and not self.does("runs do not stop")

    def mode(self, event: str) -> str:
        if event == "messages":
            return "messages-tuple"
        return event.partition("/")[0]

    def piece_metadata(self, run: Run) -> Any:
        return {} if self.does("pieces tell no node") else {"langgraph_node": self.node(run)}

    def on_state(self, run: Run, state: State) -> None:
        config = {"configurable": {"checkpoint_id": state.id}}
        told = {"config": config, "values": self.shown_values(state), "next": state.next}
        if not self.does("the first checkpoint is not told") or not state.next:
            self.frame(run, "checkpoints", told)
        event = {"event": "on_chain_stream", "name": self.node(run), "run_id": run.id}
        self.frame(run, "events", event if self.does("events have no data") else {**event, "data": {}})
        self.frame(run, "debug", {"type": "checkpoint", "step": 0, "payload": told})
        if state.next and self.does("values begin with the answer"):
            return
        super().on_state(run, state)
        if state.next:
            self.on_task(run, {"input": self.shown_values(state)})

    def on_task(self, run: Run, more: dict[str, Any]) -> None:
        task = {"id": run.id, "name": self.node(run), **more}
        is_result = "result" in more
        if not (is_result and self.does("results of tasks are not told")):
            self.frame(run, "tasks", task)
        if not (is_result and self.does("debug tells no results")):
            self.frame(run, "debug", {"type": "task_result" if is_result else "task", "step": 1, "payload": task})

    def speak(self, run: Run, message: Message, words: Sequence[str]) -> None:
        told = {**message, "id": str(uuid4())} if self.does("pieces have ids of their own") else message
        if self.does("pieces are alone"):
            for word in words:
                self.frame(run, "messages", self.shown_message({**told, "text": word}))
        else:
            super().speak(run, told, words)
        if not self.does("messages have no metadata"):
            self.frame(run, "messages/metadata", {message["id"]: {"metadata": self.piece_metadata(run)}})
        for number in range(1, len(words) + 1):
            text = words[number - 1] if self.does("partial messages are pieces") else " ".join(words[:number])
            self.frame(run, "messages/partial", [self.shown_message({**message, "text": text})])
        self.on_task(run, {"result": {"messages": [self.shown_message(message)]}})

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
        asked = {"__interrupt__": self.interrupts(state)}
        if not self.does("values tell no question"):
            self.frame(run, "values", {**self.shown_values(state), **asked})
        if not self.does("updates tell no question"):
            self.frame(run, "updates", asked)
        super().ask(run, questions)

    def fail(self, run: Run) -> None:
        run.thread.extra["error"] = {"error": "ValueError", "message": "it failed"}
        super().fail(run)
