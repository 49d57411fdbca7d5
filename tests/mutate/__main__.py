"""`python -m tests.mutate --requests 50000 --seed 1`: a campaign, and what it found."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.mutate.campaign import campaign

_STEP = 2000


async def _run(requests: int, seed: int, first: int, folder: Path) -> bool:
    async with campaign(folder, seed) as tally:
        for start in range(first, first + requests, _STEP):
            await tally.send(start, min(_STEP, first + requests - start))
            print(f"{start + _STEP - first} requests, {len(tally.faults)} faults", file=sys.stderr, flush=True)
    print(tally.summary(), flush=True)
    return not tally.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="babelgate-mutate-"))
    return 0 if asyncio.run(_run(arguments.requests, arguments.seed, arguments.first, folder)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
