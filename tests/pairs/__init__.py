"""Every server before every kind of agent: what a caller sees must not depend on what the agent speaks.

`cast` has the agents, one for each thing that a run can do; `graph` and `model` have their likes as graphs and models.
`house` puts them behind a gateway: in its own process, behind an upstream of some protocol (a second gateway that
serves them on a real socket), or as their likes on an official server. `caller` says what a caller does and sees in no
protocol's words; each protocol has a client that does it, in raw JSON against the wire, sharing nothing with the
adapters.

`extended` has callers that ask for the Babelgate extension, and `whole` the agent that says one of everything to them.

A further server is one class with a line in `house.CALLERS`, a further upstream one line in `house.HOUSES` and one in
`docs.pairing.AGENTS`. The published matrix (docs/pairs.md) says what each pair leaves out: a test is skipped just where
its cell says that what it is about gets lost, with the cell's reason, and `tests/skips.lock` lists them all.
"""
