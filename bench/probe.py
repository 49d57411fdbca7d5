"""Latency of `/healthz`, requested at intervals by a process that does nothing else.

    .venv/bin/python -m bench.probe PORT SECONDS

It prints the latencies in seconds, one a line.
"""

import gc
import http.client
import sys
import time
from collections.abc import Sequence
from threading import Event
from typing import Final

EVERY: Final = 0.05
"""Seconds between two requests. The next one waits for a response that takes longer."""
_TIMEOUT: Final = 60.0
"""Maximum seconds for which a request waits for its response."""


def measure(port: int, seconds: float) -> list[float]:
    latencies, pause = list[float](), Event()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise SystemExit(f"/healthz: expected status 200, got {response.status}")
        latencies.append(time.monotonic() - begun)
        pause.wait(max(0.0, begun + EVERY - time.monotonic()))
    connection.close()
    return latencies


def parse(output: bytes) -> list[float]:
    """Return the latencies that a process of this module has printed."""
    return sorted(map(float, output.split()))


def report(latencies: Sequence[float]) -> None:
    """Print percentiles of the sorted latencies."""
    if not latencies:
        raise SystemExit("/healthz: no response")
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    percentiles = [
        f"{name} {latencies[int(share * (len(latencies) - 1))] * 1000:.1f}" for name, share in shares.items()
    ]
    print(f"/healthz, ms: {', '.join(percentiles)}, longest {latencies[-1] * 1000:.1f} of {len(latencies)}")


if __name__ == "__main__":
    gc.disable()
    for latency in measure(int(sys.argv[1]), float(sys.argv[2])):
        print(f"{latency:.6f}")
