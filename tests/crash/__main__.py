"""`python -m tests.crash --rounds 60 --seed 1`: a campaign, and what it found."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.crash.campaign import campaign


async def _run(rounds: int, seed: int, folder: Path) -> bool:
    async with campaign(folder, seed) as made:
        made.after_each = lambda each: print(each.told, file=sys.stderr, flush=True)
        await made.rounds(rounds)
    print(made.summary(), flush=True)
    return not made.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="babelgate-crash-"))
    return 0 if asyncio.run(_run(given.rounds, given.seed, folder)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
