"""Every server before every kind of agent: what a caller sees must not depend on what the agent speaks.

`cast` has the agents, one for each thing that a run can do. `house` puts them behind a gateway: in its own process,
behind an upstream of some protocol (a second gateway that serves them on a real socket), or as their likes on a server
made with a protocol's official SDK. `caller` says what a caller does and sees in no protocol's words; each protocol has
a client that does it, in raw JSON against the wire, sharing nothing with the adapters.

A further server is one class with a line in `house.CALLERS`, a further upstream one line in `house.HOUSES`. A pair may
leave out a test only where one of its protocols declares in `CARRIES` that it does not carry what the test is about:
the declaration is the reason of the skip, and `tests/skips.lock` lists them all.
"""
