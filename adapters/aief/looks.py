"""Requests that read a run over AIEF. A task of AIEF is a thread of the gateway."""

from collections.abc import Sequence
from urllib.parse import quote

from babelgate.adapters.aief.carries import VERSION
from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest
from babelgate.canonical import Feature


def looks(target: LookTarget) -> Sequence[Look]:
    """Return one read of the run: its step. If the agent marks steps, the run has several, and the read is the task
    with all steps."""
    path = f"/agent/{quote(target.task.agent, safe='')}/ap/v1/agent/tasks/{target.task.thread_id}"
    if Feature.STEP in target.features:
        return (Look(version=VERSION, title="AIEF task", request=ReadRequest(path=path)),)
    request = ReadRequest(path=f"{path}/steps/{target.run.run_id}")
    return (Look(version=VERSION, title="AIEF step", request=request),)
