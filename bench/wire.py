"""Cost of recorded exchanges: A2A calls of an agent behind a server, with each value of `console.wire`.

A round measures every gateway once, in turn. The figures are medians over the rounds, and so are the ratios, which are
computed in each round. `--before` adds the gateway of another checkout. The recording alone is measured in this
process, without a network.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx

from babelgate.gateway.runs.run_exchanges import RunExchanges
from bench import server, work
from bench.server import LoadFigures, ServerProcess
from bench.work import Job

MODES: Final = ("off", "failures", "all")
"""Measured values of the setting `console.wire`. `off`, the first, is the baseline of the others."""
_REQUEST: Final = httpx.Request(
    "POST",
    "http://127.0.0.1:9000/a2a/echo",
    headers={"Authorization": "Bearer 0123456789abcdef", "Accept-Encoding": "identity", "A2A-Version": "1.0"},
    content=b"x" * 400,
)
_HEADERS: Final = [
    (b"Content-Type", b"application/json"),
    *[(b"X-Number-%d" % number, b"value") for number in range(5)],
]
_PIECE: Final = b"x" * 200
"""Piece of a body: a server-sent event with one token."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.wire", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000, help="calls per round (1000)")
    parser.add_argument("--streams", type=int, default=100, help="streams per round (100)")
    parser.add_argument("--rounds", type=int, default=15, help="number of rounds (15)")
    parser.add_argument("--connections", type=int, default=4, help="concurrent connections (4)")
    parser.add_argument("--before", metavar="FOLDER", help="checkout of another commit to compare with")
    options = parser.parse_args()
    _measure_alone(options.rounds)
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        home = Path(folder)
        far = servers.enter_context(server.running(server.uvicorn("bench.upstream:app"), home / "far"))
        command = server.gateway(f"far=http://127.0.0.1:{far.port}")
        targets: dict[str, ServerProcess] = {}
        variables = {mode: {"BABELGATE_CONSOLE__WIRE": mode} for mode in MODES}
        if options.before:
            for mode in MODES:
                variables[f"{mode}, before"] = {**variables[mode], "PYTHONPATH": options.before}
        for name, environment in variables.items():
            target = server.running(command, home / name, environment=environment)
            targets[name] = servers.enter_context(target)
        message, stream = work.a2a_message("SendMessage"), work.a2a_message("SendStreamingMessage", work.TOKENS)
        for title, job, jobs in (
            ("A2A SendMessage", work.posted("/a2a/far", message, b"TASK_STATE_COMPLETED", work.A2A), options.jobs),
            ("A2A stream of 200 tokens", work.posted("/a2a/far", stream, b"token199", work.A2A), options.streams),
        ):
            print(f"\n{title}\n{'':18}{'CPU ms/job':>12}{'CPU/off':>10}")
            _measure(targets, job, jobs, options)


def _measure_alone(rounds: int) -> None:
    """Measure the recording of exchanges with one piece and with 200 pieces, without a network."""
    print(f"medians of {rounds} rounds\n\nRecording alone\n{'':18}{'us/call':>12}{'us/stream':>12}")
    used: dict[tuple[str, int], list[float]] = {(mode, pieces): [] for mode in MODES for pieces in (1, 200)}
    for _ in range(rounds):
        for (mode, pieces), times in used.items():
            times.append(_record(mode, pieces, 40_000 // (pieces + 40)))
    for mode in MODES:
        call, stream = (statistics.median(used[mode, pieces]) for pieces in (1, 200))
        print(f"{mode:18}{call:>12.1f}{stream:>12.1f}", flush=True)


def _record(mode: str, pieces: int, runs: int) -> float:
    """Record a run that succeeds, as often as `runs` says, and return the microseconds of CPU time of each."""
    exchanges, begun = RunExchanges(), time.process_time()
    for number in range(runs):
        start: Any = SimpleNamespace(pk=number, run=SimpleNamespace(run_id=""))
        recorder = exchanges.open(start, mode)
        if recorder is not None:
            exchange = recorder.begin(_REQUEST.method, str(_REQUEST.url), _REQUEST.headers.raw)
            assert exchange is not None
            exchange.note_head(200, _HEADERS)
            for _ in range(pieces):
                exchange.note_piece(_PIECE)
            exchange.note_end()
        exchanges.close(start, mode, has_failed=False)
    return (time.process_time() - begun) / runs * 1e6


def _measure(targets: Mapping[str, ServerProcess], job: Job, jobs: int, options: argparse.Namespace) -> None:
    rounds: dict[str, list[LoadFigures]] = {name: [] for name in targets}
    for number in range(options.rounds + 1):
        for name, target in targets.items():
            figures = server.measure(target, job, jobs, options.connections)
            if number:  # the first warms up
                rounds[name].append(figures)
    for name, each in rounds.items():
        pairs = zip(each, rounds[MODES[0]], strict=True)
        ratio = statistics.median(figures.cpu / off.cpu for figures, off in pairs)
        print(f"{name:18}{server.median(each).cpu:>12.3f}{ratio:>10.3f}", flush=True)


if __name__ == "__main__":
    main()
