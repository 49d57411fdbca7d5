"""Agents served by the official SDK of the AIEF Agent Protocol. It serves one agent, so the input of a task names it:
`echo: Hello` is the agent echo with the text Hello."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_protocol import Agent, Artifact, Step, Task
from agent_protocol.agent import base_router
from agent_protocol.server import app
from serving import Gate, listen, serve

gate = Gate()


def asked(task: Task) -> tuple[str, str]:
    agent, _, text = (task.input or "").partition(": ")
    return agent, text


async def task_handler(task: Task) -> None:
    agent, text = asked(task)
    names = ("plan", "work", "review") if agent == "steps" else (agent,)
    for name in names:
        await Agent.db.create_step(task.task_id, name, input=text, is_last=agent != "ask" and name == names[-1])


async def step_handler(step: Step) -> Step:
    task = await Agent.db.get_task(step.task_id)
    agent, text = asked(task)
    if agent == "fail":
        raise RuntimeError(text)
    if agent == "slow":
        await gate.wait()
    if agent == "files":
        for given in list(task.artifacts):
            keep(task, step, f"copy-of-{given.file_name}", read(task, given))
        keep(task, step, "report.txt", text.encode())
    if step.name == "ask":
        await Agent.db.create_step(task.task_id, "greet", is_last=True)
        step.output = "What is your name?"
    elif step.name == "greet":
        step.output = f"Hello, {step.input}."
    else:
        step.output = f"{step.name}: {text}"
    return step


def read(task: Task, artifact: Artifact) -> bytes:
    return Path(Agent.get_artifact_path(task.task_id, artifact)).read_bytes()


def keep(task: Task, step: Step, name: str, content: bytes) -> None:
    # Not the SDK's `create_artifact(step_id=…)`, which puts it on the first step of the task.
    made = Artifact(artifact_id=f"{step.step_id}-{name}", file_name=name, agent_created=True, relative_path="out")
    path = Path(Agent.get_artifact_path(task.task_id, made))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    task.artifacts.append(made)
    step.artifacts.append(made)


async def main() -> None:
    Agent.setup_agent(task_handler, step_handler)
    app.include_router(base_router)
    with TemporaryDirectory() as Agent.workspace:
        # uvicorn and not its own `Agent.start`: hypercorn is slow at each call.
        await serve(app, listen(), gate)


if __name__ == "__main__":
    asyncio.run(main())
