"""Requests that read a run as a UI message stream."""

from collections.abc import Sequence

from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest
from babelgate.adapters.vercel_ui.carries import VERSION


def looks(target: LookTarget) -> Sequence[Look]:
    """Return two requests for the console: one for the messages of the run's chat, and one for the stream of the
    run."""
    path = f"/vercel-ui/{target.task.agent}"
    return (
        Look(version=VERSION, title="UI messages", request=ReadRequest(path=f"{path}/{target.task.thread_id}")),
        Look(
            version=VERSION,
            title="UI message stream",
            form="stream",
            request=ReadRequest(path=f"{path}/{target.run.run_id}/stream?steps=true"),
        ),
    )
