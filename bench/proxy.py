"""Overhead of a proxy: an echo agent called over A2A 1.0 directly, through the gateway and through other proxies.

The floor is the simplest possible proxy (`bench.floor`). A round measures every target once, in turn, so that other
load on the machine affects all alike. The figures are medians over the rounds, and so are the ratios, which are
computed in each round.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

from bench import server, work
from bench.server import LoadFigures, ServerProcess
from bench.work import Job

EXAMPLE: Final = """example:
  .venv/bin/python -m bench.proxy
  .venv/bin/python -m bench.proxy --floor other/bin/python --litellm other/bin/python --rounds 5

Commands that create the environment `other`:
  python -m venv other
  other/bin/pip install litestar uvicorn[standard] pydantic httpx-aiohttp 'litellm[proxy]' 'a2a-sdk<2'"""

NO_PROXY: Final = (
    "env",
    *(f"--unset={name}" for name in ("http_proxy", "https_proxy", "all_proxy")),
    *(f"--unset={name}" for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")),
)
HTTPX: Final = (*NO_PROXY, "all_proxy=http://127.0.0.1:9", "no_proxy=127.0.0.1")
"""Command prefix for a gateway whose calls use httpx's own transport. The gateway uses it if the environment sets a
proxy. `no_proxy` excludes the servers of the measurement, so that no call really goes to the proxy."""

DIRECT: Final = "direct"
GATEWAY: Final = "gateway"
KEY: Final = "sk-4fK9vQ2mZ7xW1bT8"
"""Key of LiteLLM, which rejects weak ones. The server exists only during the measurement."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.proxy",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=int, default=2000, help="jobs per round (2000)")
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 16], help="concurrent connections (1 16)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (3)")
    parser.add_argument("--delay", type=float, default=0, metavar="MS", help="pause between two tokens (0)")
    parser.add_argument("--httpx", action="store_true", help="also measure a gateway with httpx's own transport")
    parser.add_argument("--floor", metavar="PYTHON", help="Python with litestar, uvicorn and httpx-aiohttp")
    parser.add_argument("--litellm", metavar="PYTHON", help="Python with litellm[proxy] and a2a-sdk")
    options = parser.parse_args()
    server.pin_client()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        home = Path(folder)
        # Longer than a round, so no connection is closed while another target is measured.
        upstream = [*server.uvicorn("bench.upstream:app"), "--timeout-keep-alive", "600"]
        far = servers.enter_context(
            server.running(upstream, home / DIRECT, environment={"BENCH_DELAY": f"{options.delay / 1000}"})
        )
        targets = {DIRECT: (far, _jobs("/a2a"))} | _targets(options, servers, home, far)
        print(f"{options.jobs} jobs a round, medians of {options.rounds} rounds")
        for index, name in enumerate(("A2A SendMessage", "A2A stream of 200 tokens")):
            for connections in options.connections:
                print(f"\n{name}, {connections} connections")
                print(f"{'':12}{'jobs/s':>10}{'CPU ms/job':>12}{'median ms':>11}{'added ms':>10}{'gateway/it':>12}")
                count = max(connections, options.jobs // (20 if index else 1))
                _measure({each: (at, jobs[index]) for each, (at, jobs) in targets.items()}, count, connections, options)


def _jobs(path: str, headers: str = "") -> tuple[Job, Job]:
    """Return the jobs of a call and of a stream."""
    headers = work.A2A + headers
    return (
        work.posted(path, work.a2a_message("SendMessage"), b"TASK_STATE_COMPLETED", headers),
        work.posted(path, work.a2a_message("SendStreamingMessage", work.TOKENS), b"token199", headers),
    )


def _targets(
    options: argparse.Namespace, servers: ExitStack, home: Path, far: ServerProcess
) -> dict[str, tuple[ServerProcess, tuple[Job, Job]]]:
    url = f"http://127.0.0.1:{far.port}/a2a"
    found: dict[str, tuple[ServerProcess, tuple[Job, Job]]] = {}
    serve = server.gateway(f"echo=http://127.0.0.1:{far.port}")
    for name, environment in ((GATEWAY, NO_PROXY), ("by httpx", HTTPX))[: 2 if options.httpx else 1]:
        at = servers.enter_context(server.running([*environment, *serve], home / name))
        found[name] = at, _jobs("/a2a/echo")
    if options.floor:
        command = [*NO_PROXY, *server.uvicorn("bench.floor:app", options.floor)]
        at = servers.enter_context(server.running(command, home / "floor", environment={"BENCH_UPSTREAM": url}))
        found["floor"] = at, _jobs("/a2a")
    if options.litellm:
        at = servers.enter_context(_litellm(options.litellm, home / "LiteLLM", url))
        found["LiteLLM"] = at, _jobs("/a2a/echo", f"Authorization: Bearer {KEY}\r\n")
    return found


def _litellm(python: str, home: Path, url: str) -> AbstractContextManager[ServerProcess]:
    home.mkdir()
    card = {
        "name": "echo",
        "description": "Echo.",
        "version": "1",
        "protocolVersion": "1.0",
        "url": url,
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }
    config = {
        "model_list": [],
        "agents": [{"agent_name": "echo", "agent_card_params": card}],
        "general_settings": {"master_key": KEY},
    }
    (home / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    command = [
        str(Path(python).parent / "litellm"),
        "--config",
        "config.yaml",
        "--port",
        "{port}",
        "--host",
        "127.0.0.1",
    ]
    return server.running([*NO_PROXY, *command], home, environment={"LITELLM_LOG": "ERROR"}, patience=120)


def _measure(
    targets: Mapping[str, tuple[ServerProcess, Job]], count: int, connections: int, options: argparse.Namespace
) -> None:
    rounds: dict[str, list[LoadFigures]] = {name: [] for name in targets}
    for number in range(options.rounds + 1):
        jobs = count if number else max(connections, count // 8)  # the first warms up
        for name, (at, job) in server.in_turn(targets.items(), number):
            found = server.measure(at, job, jobs, connections)
            if number:
                rounds[name].append(found)
    direct, gateway = rounds[DIRECT], rounds[GATEWAY]
    for name, each in rounds.items():
        found = server.median(each)
        added = _median(lambda figures, other: figures.latency - other.latency, each, direct)
        ratio = _median(lambda figures, other: figures.rate / other.rate, gateway, each)
        print(
            f"{name:12}{found.rate:>10.0f}{found.cpu:>12.3f}{found.latency:>11.2f}{added:>10.2f}{ratio:>12.2f}",
            flush=True,
        )


def _median(
    of: Callable[[LoadFigures, LoadFigures], float], first: list[LoadFigures], second: list[LoadFigures]
) -> float:
    return statistics.median(of(one, other) for one, other in zip(first, second, strict=True))


if __name__ == "__main__":
    main()
