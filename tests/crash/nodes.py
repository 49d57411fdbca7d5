"""Campaigns against several gateways on one PostgreSQL, which callers use like one.

Requests go to one node after the other, as from a load balancer that leaves out nodes that do not answer. In each
round, one of these things happens, selected by the seed:

- a node is killed (SIGKILL)
- a node is suspended for longer than the others wait for it (SIGSTOP), and resumed
- the database server is killed, or suspended for some seconds
- the connections between a node and the database are disturbed
- all nodes are restarted one after the other (SIGTERM)

Then the checks of `tests.crash.check` must hold, as for one gateway.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

import httpx

from tests.balancer import RoundRobin
from tests.crash.campaign import MOMENTS, Moment, Tally, agents, cut_short, refusal_as_disconnect, upstream
from tests.crash.check import Checks
from tests.crash.load import Load, note_task
from tests.crash.world import World
from tests.gateway.stage import Nursery, Stage, nursery
from tests.gateway.storage.wire import Wire
from tests.postgres_server import PostgresServer
from tests.serving import listen

_BOUND: Final = 90.0
KINDS: Final = ("kill", "stop", "server", "freeze")
"""Harm to a node or to the database server. `roll`, a restart of all nodes in turn, is used only on request."""
WIRE_KINDS: Final = ("reset", "swallow", "mute", "deaf", "late", "read-only")
"""Harm to the connections between a node and the database.

All are reset; or packets are dropped in both directions, or only those of the node, or only those of the server. A
commit can also arrive late, when its connection is long lost. `read-only` makes the server refuse writes for a while.
"""
_FROZEN: Final = (1.0, 12.0)
"""Time for which the database server is suspended, in seconds: shorter than a node's lease, or longer."""
_CALLERS: Final = 10
"""Number of callers that act without a pause while all nodes are restarted."""


class Cluster:
    """Nodes, each with its own folder. `Checks` and `Load` use a cluster like one gateway."""

    def __init__(
        self, folder: Path, born: list[Nursery], wires: Sequence[Wire], schema: str, settings: Mapping[str, Any]
    ) -> None:
        """Create the nodes.

        `schema` is the query of the database's URL, which each node reaches through its own wire.
        """
        self.nodes: list[Stage] = []
        for number, (its, wire) in enumerate(zip(born, wires, strict=True)):
            settings = {**settings, "database": f"{wire.url}?{schema}"}
            place = folder / f"node-{number}"
            place.mkdir()
            with listen() as free:
                port = free.getsockname()[1]
            self.nodes.append(Stage(place, its, settings, port))
        self.balancer = RoundRobin()
        self.http = self.new_client()
        self.rows, self.records = self.nodes[0].rows, self.nodes[0].records

    def new_client(self) -> httpx.AsyncClient:
        self.http = httpx.AsyncClient(
            transport=self.balancer, base_url="http://gateway.test", timeout=30, trust_env=False
        )
        return self.http

    async def start(self, *nodes: Stage) -> None:
        for node in nodes:
            await node.start()
            self.balancer.add(node.http.base_url)

    async def leave_out(self, node: Stage) -> None:
        await self.balancer.leave_out(node.http.base_url)

    async def close(self) -> None:
        for node in self.nodes:
            await self.leave_out(node)
            await node.close()


class NodeCampaign(Tally):
    def __init__(
        self,
        folder: Path,
        born: list[Nursery],
        far: Stage,
        seed: int,
        together: int,
        server: PostgresServer,
        kinds: Sequence[str],
        frozen: tuple[float, float],
        wires: Sequence[Wire],
    ) -> None:
        super().__init__(folder, seed)
        self.random = Random(seed)
        self._fate = Random(f"what happens {seed}")
        """Random numbers for the harm. Their users take turns, so that the same seed gives the same sequence."""
        self.actions = self.cut = 0
        """Number of actions during restarts of all nodes (`actions`), and of those among them that lost their
        connection (`cut`)."""
        self.longest = 0.0
        """Longest time from the end of the callers' actions until all runs had ended, in seconds."""
        self._born, self._far = born, far
        self._together, self._server, self._kinds, self._frozen = together, server, kinds, frozen
        self._wires = wires
        self._due: list[str] = []

    def summary(self) -> str:
        return (
            f"the longest wait for runs to end: {self.longest:.1f} s\n"
            f"while nodes were restarted: {self.actions} things were done, and {self.cut} of them cut off\n"
            f"{super().summary()}"
        )

    async def _on_one(self, folder: Path, count: int) -> None:
        cluster = Cluster(
            folder,
            self._born,
            self._wires,
            self._server.add_schema(f"nodes_{self.round}").partition("?")[2],
            {
                "agents": agents(self._far),
                "limits": {"cancel_grace": 2},
                "blobs": str(folder / "gateway.blobs"),
                "cluster": True,
                # URLs in responses must not depend on the node.
                "public_url": "http://gateway.test",
            },
        )
        world = World()
        load, checks = Load(world, self.random), Checks(cluster, world)
        try:
            await cluster.start(*cluster.nodes)
            for _ in range(count):
                if self.is_over:
                    break
                self.round += 1
                await self._one(self._next_kind(), cluster, load, checks)
                self.note_faults(checks, folder)
                self.after_each(self)
            for node in cluster.nodes:
                if "Traceback" in node.complaints():
                    self.faults.append(f"round {self.round}, seed {self.seed}: a traceback in {node.folder}/stderr.txt")
        finally:
            await cluster.close()
        self.add(cluster, world, checks)

    async def _repair(self, kind: str, cluster: Cluster, victim: Stage, frozen: float, wire: Wire) -> None:
        if kind == "server":
            await asyncio.to_thread(self._server.start)
        elif kind == "freeze":
            await asyncio.sleep(frozen)
            self._server.thaw()
        elif kind in WIRE_KINDS:
            await asyncio.sleep(frozen)
            self._mend(kind, wire)
        else:
            await cluster.leave_out(victim)

    def _next_kind(self) -> str:
        """Return the next kind of harm. Each kind comes once before any repeats."""
        if not self._due:
            self._due = self._fate.sample(self._kinds, len(self._kinds))
        return self._due.pop()

    async def _one(self, kind: str, cluster: Cluster, load: Load, checks: Checks) -> None:
        if kind == "roll":
            await self._roll(cluster, load, checks)
            return
        victim, frozen = self._fate.choice(cluster.nodes), self._fate.uniform(*self._frozen)
        wire = self._wires[cluster.nodes.index(victim)]
        did = asyncio.Event()

        def act() -> None:
            if did.is_set():
                return
            did.set()
            self._strike(kind, victim, wire)

        async def follow() -> None:
            """Wait for the failure, and repair the damage while callers continue."""
            await did.wait()
            await self._repair(kind, cluster, victim, frozen, wire)

        moment = Moment(act, self._fate.choice(MOMENTS), self._fate.randrange(1, 60))
        http = cluster.new_client()
        http.event_hooks = {"response": [note_task, moment.response]}
        if kind in ("server", "freeze", *WIRE_KINDS):
            http.event_hooks["response"].append(refusal_as_disconnect)
        load.move(http)
        world_before = len(load.world.runs)
        async with asyncio.timeout(_BOUND), asyncio.TaskGroup() as group:
            following = group.create_task(follow())
            work = [group.create_task(cut_short(each(), checks)) for each in load.draw(self._together)]
            await asyncio.wait(work)
            act()
            await following
        self.count(kind)
        started = monotonic()
        if kind in WIRE_KINDS:
            await _is_ready(*cluster.nodes)
        early = kind == "kill" and self._fate.random() < 0.5
        if kind == "kill":
            await victim.killed()
        if early:
            await cluster.start(victim)
        load.move(cluster.new_client())
        await load.send_again()
        checks.has_stopped_node = kind == "stop"
        await checks.settle()
        self.longest = max(self.longest, monotonic() - started)
        await checks.all()
        checks.has_stopped_node = False
        if kind == "stop":
            victim.signal(signal.SIGCONT)
            await _is_ready(victim)  # its unfinished commits are refused, and it joins again
            cluster.balancer.add(victim.http.base_url)
            for run in load.world.runs[world_before:]:
                run.settled = False
            await checks.all()
        elif kind == "kill" and not early:
            await cluster.start(victim)

    def _strike(self, kind: str, victim: Stage, wire: Wire) -> None:
        match kind:
            case "reset":
                wire.cut()
            case "swallow":
                wire.freeze()
            case "mute":
                wire.freeze("asked")
            case "deaf":
                wire.freeze("answered")
            case "late":
                wire.commits.append("late")
            case "read-only":
                self._server.take_writes(on=False)
            case "server":
                self._server.kill()
            case "freeze":
                self._server.freeze()
            case "stop":
                victim.signal(signal.SIGSTOP)
            case _:
                victim.kill()

    def _mend(self, kind: str, wire: Wire) -> None:
        match kind:
            case "reset":
                wire.mend()
            case "late":
                wire.commits.clear()
                if wire.is_holding:
                    wire.deliver()
            case "read-only":
                self._server.take_writes(on=True)
            case _:
                wire.thaw()

    async def _roll(self, cluster: Cluster, load: Load, checks: Checks) -> None:
        """Restart each node while callers continue.

        The balancer is not informed: callers see refused and closed connections, and reconnect to the streams that they
        followed. Any other failure is a fault.
        """
        http = cluster.new_client()
        http.event_hooks = {"response": [note_task, refuse_failures]}
        load.move(http)
        load.comes_back = True
        going = asyncio.Event()
        going.set()

        async def call() -> None:
            while going.is_set():
                self.actions += 1
                try:
                    await load.draw(1)[0]()
                except httpx.TransportError:
                    self.cut += 1
                except Exception as error:
                    checks.broke(error)

        async def roll() -> None:
            for node in cluster.nodes:
                node.signal(signal.SIGTERM)
                await node.ended()
                await cluster.start(node)
                self.count("roll")
            going.clear()

        async with asyncio.timeout(_BOUND), asyncio.TaskGroup() as group:
            for _ in range(_CALLERS):
                group.create_task(call())
            group.create_task(roll())
        load.comes_back = False
        started = monotonic()
        load.move(cluster.new_client())
        await load.send_again()
        await checks.settle()
        self.longest = max(self.longest, monotonic() - started)
        await checks.all()


async def _is_ready(*nodes: Stage) -> None:
    async with asyncio.timeout(_BOUND):
        for node in nodes:
            while (await node.http.get("/readyz")).status_code != 200:
                pass


async def refuse_failures(response: httpx.Response) -> None:
    """Turn failures into errors, because no caller may see a fault of the gateway.

    LangGraph's `/wait` has already begun its body when it is cut off, so it can only report an error there. The caller
    can join the run.
    """
    if response.request.url.path.endswith("/wait"):
        await response.aread()
        if b'"ShuttingDown"' in response.content:
            raise httpx.ReadError("the gateway stops", request=response.request)
    if response.status_code >= 500:
        await response.aread()
        raise AssertionError(f"{response.request.method} {response.url.path}: {response.status_code} {response.text}")


@asynccontextmanager
async def node_campaign(
    folder: Path,
    seed: int,
    server: PostgresServer,
    *,
    nodes: int = 3,
    together: int = 14,
    kinds: Sequence[str] = KINDS,
    frozen: tuple[float, float] = _FROZEN,
) -> AsyncGenerator[NodeCampaign]:
    """Run a campaign against several gateways, with these kinds of harm.

    `frozen` is the shortest and longest suspension of the database server, in seconds.
    """
    async with upstream(folder) as far, AsyncExitStack() as stack:
        born = [await stack.enter_async_context(nursery()) for _ in range(nodes)]
        wires = [stack.enter_context(Wire(server.url).running()) for _ in range(nodes)]
        yield NodeCampaign(folder, born, far, seed, together, server, kinds, frozen, wires)
