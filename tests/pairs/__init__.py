"""Pair suite: every server in front of every kind of agent. A caller's view must not depend on the agent's protocol.

`cast` has the agents, one for each thing that a run can do. `graph` and `model` have similar graphs and models. `house`
puts them behind a gateway: in its own process, behind an upstream of some protocol (a second gateway on a real socket),
or on an official server. `caller` defines a caller's requests and results without a protocol. Each protocol has a
client for them, in raw JSON against the wire, which shares no code with the adapters.

`extended` has callers that use the Babelgate extension, and `whole` the agent that emits one of everything for them.

To add a server, write one class and add a line to `house.CALLERS`. To add an upstream, add one line to `house.HOUSES`
and one to `docs.pairing.AGENTS`. The published matrix (docs/pairs.md) defines what each pair leaves out. A test is
skipped only if its cell says that its feature is lost, with the cell's reason; `tests/skips.lock` lists all skips.
"""
