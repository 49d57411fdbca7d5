"""Run a campaign and print its findings: `python -m tests.crash --rounds 60 --seed 1`.

- `--minutes 3` runs as many rounds as begin in this time.
- `--postgres` uses databases of a PostgreSQL server, which is killed, too.
- `--nodes 3` runs three gateways on one database.
- `--rolling` only restarts these one after the other.
"""

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from math import inf
from pathlib import Path

from tests.crash.campaign import campaign
from tests.crash.nodes import KINDS, WIRE_KINDS, node_campaign
from tests.postgres_server import PostgresServer, postgres_server


async def _run(arguments: argparse.Namespace, folder: Path, server: PostgresServer | None) -> bool:
    kinds, seed, nodes = ("roll",) if arguments.rolling else (*KINDS, *WIRE_KINDS), arguments.seed, arguments.nodes
    several = None if server is None or nodes < 2 else node_campaign(folder, seed, server, nodes=nodes, kinds=kinds)
    async with several or campaign(folder, seed, server=server) as tally:
        tally.after_each = lambda each: print(each.progress, file=sys.stderr, flush=True)
        if arguments.minutes is None:
            await tally.rounds(arguments.rounds or 60)
        else:
            await tally.rounds(arguments.rounds or inf, arguments.minutes * 60)
    print(tally.summary(), flush=True)
    return not tally.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="60 if no time is given")
    parser.add_argument("--minutes", type=float, help="no round begins later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rolling", action="store_true")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="babelgate-crash-"))
    with ExitStack() as stack:
        server = stack.enter_context(postgres_server()) if arguments.postgres or arguments.nodes > 1 else None
        return 0 if asyncio.run(_run(arguments, folder, server)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
