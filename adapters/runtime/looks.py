"""Requests that read a run over the minimal runtime."""

from collections.abc import Sequence

from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest
from babelgate.adapters.runtime.carries import VERSION


def looks(target: LookTarget) -> Sequence[Look]:
    """Return two reads of the run: the run itself, and its event stream from the first event."""
    path = f"/v1/runs/{target.run.run_id}"
    return (
        Look(version=VERSION, title="Runtime run", request=ReadRequest(path=path)),
        Look(version=VERSION, title="Runtime stream", form="stream", request=ReadRequest(path=f"{path}/stream")),
    )
