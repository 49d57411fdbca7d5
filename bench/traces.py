"""Cost of traces: A2A calls of a gateway that sends none, one trace in ten, and all of them.

Calls go to an agent in the gateway's process and to an agent behind an A2A server. A round measures every gateway once,
in turn. The figures are medians over the rounds. `--before` adds the gateway of another checkout.
"""

import argparse
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench import server, work
from bench.server import LoadFigures, ServerProcess
from bench.work import Job

SAMPLERS: Final[Mapping[str, Mapping[str, str]]] = {
    "off": {},
    "one in ten": {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"},
    "all": {"OTEL_TRACES_SAMPLER": "always_on"},
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.traces", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000, help="jobs per round (2000)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (5)")
    parser.add_argument("--connections", type=int, default=8, help="concurrent connections (8)")
    parser.add_argument("--before", metavar="FOLDER", help="checkout of another commit to compare with")
    options = parser.parse_args()
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        home = Path(folder)
        far = servers.enter_context(server.running(server.uvicorn("bench.upstream:app"), home / "far"))
        receiver = servers.enter_context(server.running(server.uvicorn("bench.bare:app"), home / "receiver"))
        targets: dict[str, ServerProcess] = {}
        agents = [f"far=http://127.0.0.1:{far.port}", "here=babelgate.gateway.demo:echo"]
        if options.before:
            before = server.running(
                server.gateway(*agents), home / "before", environment={"PYTHONPATH": options.before}
            )
            targets["before"] = servers.enter_context(before)
        for name, variables in SAMPLERS.items():
            environment = {
                **variables,
                **({"BABELGATE_TELEMETRY__TRACES": "otlp"} if variables else {}),
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{receiver.port}/",
            }
            target = server.running(server.gateway(*agents), home / name, environment=environment)
            targets[name] = servers.enter_context(target)
        for title, path in (("agent in the process", "/a2a/here"), ("agent behind A2A", "/a2a/far")):
            job = work.posted(path, work.a2a_message("SendMessage"), b"TASK_STATE_COMPLETED", work.A2A)
            print(f"\nA2A SendMessage, {title}\n{'':12}{'jobs/s':>10}{'CPU ms/job':>12}{'median ms':>11}")
            _measure(targets, job, options)


def _measure(targets: Mapping[str, ServerProcess], job: Job, options: argparse.Namespace) -> None:
    rounds: dict[str, list[LoadFigures]] = {name: [] for name in targets}
    for number in range(options.rounds + 1):
        for name, at in server.in_turn(targets.items(), number):
            jobs = options.jobs if number else options.jobs // 4  # the first warms up
            found = server.measure(at, job, jobs, options.connections)
            if number:
                rounds[name].append(found)
    for name, each in rounds.items():
        found = server.median(each)
        print(f"{name:12}{found.rate:>10.0f}{found.cpu:>12.3f}{found.latency:>11.2f}", flush=True)


if __name__ == "__main__":
    main()
