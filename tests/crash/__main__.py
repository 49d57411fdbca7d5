"""`python -m tests.crash --rounds 60 --seed 1`: a campaign, and what it found. With `--postgres` the databases are of a
server that is killed, too; with `--nodes 3` so many gateways are on one, and with `--rolling` nothing happens but
that these are restarted one after the other."""

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.crash.campaign import campaign
from tests.crash.nodes import KINDS, node_campaign
from tests.postgres_server import PostgresServer, postgres_server


async def _run(rounds: int, seed: int, folder: Path, server: PostgresServer | None, nodes: int, rolling: bool) -> bool:
    kinds = ("roll",) if rolling else KINDS
    several = None if server is None or nodes < 2 else node_campaign(folder, seed, server, nodes=nodes, kinds=kinds)
    async with several or campaign(folder, seed, server=server) as made:
        made.after_each = lambda each: print(each.told, file=sys.stderr, flush=True)
        await made.rounds(rounds)
    print(made.summary(), flush=True)
    return not made.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rolling", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="babelgate-crash-"))
    with ExitStack() as stack:
        server = stack.enter_context(postgres_server()) if given.postgres or given.nodes > 1 else None
        return 0 if asyncio.run(_run(given.rounds, given.seed, folder, server, given.nodes, given.rolling)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
