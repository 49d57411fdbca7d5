"""Console API for looks: the requests with which each protocol reads a run, and the losses of their responses."""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final

from litestar import Response

from babelgate.adapters import ADAPTERS, Adapter
from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest
from babelgate.adapters.kit.looks import losses_of
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError, Feature, Hub, Principal, Run, Scope
from babelgate.canonical.used import UsedFeatures
from babelgate.canonical.value import JsonObject

_CACHE_SIZE: Final = 256
"""Maximum number of runs whose features are cached. Chosen."""


class LookHandlers(Handlers):
    """HTTP handlers of the console for looks at a run."""

    def __init__(self, hub: Hub, adapters: Sequence[Adapter] = ADAPTERS) -> None:
        """Create the handlers. `hub` checks what a caller may read, and `adapters` describe the looks."""
        self._hub = hub
        self._adapters = adapters
        self._features: OrderedDict[tuple[str, str], UsedFeatures] = OrderedDict()
        """Features that runs have used, by owner and run id, so that a later request reads only new records."""

    async def list_looks(self, request: AnyRequest) -> Response[Any]:
        """Return the looks at a run in all protocols. Raises not_found."""
        who = caller(request)
        target = await self._target(who.principal, request.path_params["run_id"])
        items = [
            _encode(adapter, look, target.features, who.agent_path)
            for adapter in self._adapters
            for look in adapter.looks(target)
        ]
        return Response({"items": items})

    async def _target(self, principal: Principal, run_id: str) -> LookTarget:
        """Return the task, run, thread and features from which adapters make their looks. Raises not_found."""
        reads = self._hub.reads
        run = await reads.run(principal, run_id)
        if run.removed:
            raise FaultError(FaultCode.NOT_FOUND, f"Run {run_id} not found")
        task = await reads.task(principal, run.task_id)
        return LookTarget(
            task=task,
            run=run,
            thread=await reads.thread(principal, task.thread_id),
            created=await reads.run_input(principal, run),
            features=await self._used_features(principal, run, task.thread_id),
        )

    async def _used_features(self, principal: Principal, run: Run, thread_id: str) -> frozenset[Feature]:
        key = (principal.owner, run.run_id)
        used = self._features.pop(key, None) or UsedFeatures(run.first_seq - 1)
        if not run.has_ended or used.seq < run.last_seq:
            log = self._hub.reads.log(principal, Scope(thread_id, "run", run.run_id), used.seq)
            async with aclosing(log) as batches:
                async for records in batches:
                    for record in records:
                        used.apply(record)
        self._features[key] = used
        if len(self._features) > _CACHE_SIZE:
            self._features.popitem(last=False)
        return used.value()


def _encode(adapter: Adapter, look: Look, features: frozenset[Feature], prefix: str) -> JsonObject:
    """Return a look as the API shows it, with its losses. `prefix` is the path `/agent/{name}` of the request, which is
    removed from the path of the look."""
    head: JsonObject = {"protocol": adapter.name, "version": look.version, "title": look.title, "form": look.form}
    if look.request is None:
        return {**head, "why_not": look.why_not, "losses": []}
    losses = [{"feature": feature, "how": how} for feature, how in losses_of(adapter, look, features).items()]
    return {**head, "request": _encode_request(look.request, prefix), "losses": losses}


def _encode_request(request: ReadRequest, prefix: str) -> JsonObject:
    path = request.path.removeprefix(prefix) if request.path.startswith(f"{prefix}/") else request.path
    return {"method": request.method, "path": path, "headers": dict(request.headers), "body": request.body}
