"""Server with the official SDK of the AIEF Agent Protocol: each task has one step, which repeats the input of the
task."""

from agent_protocol import Agent, Step, Task
from agent_protocol.agent import base_router
from agent_protocol.server import app as app


async def add_step(task: Task) -> None:
    await Agent.db.create_step(task.task_id, "echo", input=task.input, is_last=True)


async def do_step(step: Step) -> Step:
    task = await Agent.db.get_task(step.task_id)
    step.output = task.input
    return step


Agent.setup_agent(add_step, do_step)
app.include_router(base_router)
