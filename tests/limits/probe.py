"""Effect of a strained gateway on other callers, measured by a separate program, which the strain does not slow down.

    python -m tests.limits.probe PORT PID

After a line `begin`, it repeatedly requests `/ok` and an answer of the agent `echo`, each on a separate connection, and
prints `ready` after the first answers. After a line `end`, it prints the slowest answers as JSON. One process serves
all tests of a gateway, because starting it takes longer than many of the measured requests.
"""

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_PATIENCE: Final = 120.0
"""Timeout of one answer, in seconds."""
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
_ECHO: Final = json.dumps({"assistant_id": "echo", "input": {"message": "hi"}}).encode()


class _Asking(threading.Thread):
    """A thread that repeats one request."""

    def __init__(self, ask: Callable[[http.client.HTTPConnection], None], pause: float, port: int, pid: int) -> None:
        super().__init__(daemon=True)
        self.first = threading.Event()
        self.over = threading.Event()
        self.wait = 0.0
        """Time of the slowest answer, in seconds."""
        self.busy = 0.0
        """Time that the gateway computed during an answer, in seconds; the largest value.

        It is the smaller one of the answer's time and the gateway's CPU time. Other load on the machine slows answers
        down, but does not count.
        """
        self.requests = 0
        self.failed = ""
        self._ask = ask
        self._pause = pause
        self._port = port
        self._stat = Path(f"/proc/{pid}/stat")

    def _cpu(self) -> float:
        """Return the CPU time of all threads of the gateway, in seconds."""
        fields = self._stat.read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK

    def run(self) -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE)
            while not (self.over.wait(self._pause) and self.requests):
                before, began = self._cpu(), time.perf_counter()
                self._ask(connection)
                took = time.perf_counter() - began
                if self.requests:  # the first request opens the connection
                    self.wait = max(self.wait, took)
                    self.busy = max(self.busy, min(took, self._cpu() - before))
                self.requests += 1
                self.first.set()
        except Exception as error:
            self.failed = f"{type(error).__name__}: {error}"
            self.first.set()


def _ok(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/ok")
    answer = connection.getresponse()
    if answer.status != 200 or b'"ok":true' not in answer.read():
        raise AssertionError(f"/ok: {answer.status}")


def _echo(connection: http.client.HTTPConnection) -> None:
    connection.request("POST", "/runs/wait", _ECHO)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200 or b"hi" not in body:
        raise AssertionError(f"/runs/wait: {answer.status} {body[:200]!r}")


# Delay after which a blocked gateway is detected; a failing test blocks for seconds. With shorter pauses, the probe
# would use a third of the gateway's time.
_PAUSES: Final = {"ok": 0.02, "echo": 0.2}


def _start(port: int, pid: int) -> dict[str, _Asking]:
    asking = {name: _Asking(ask, _PAUSES[name], port, pid) for name, ask in (("ok", _ok), ("echo", _echo))}
    for each in asking.values():
        each.start()
    for each in asking.values():
        each.first.wait(_PATIENCE)
    return asking


def _stop(asking: Mapping[str, _Asking]) -> dict[str, dict[str, object]]:
    for each in asking.values():
        each.over.set()
    for each in asking.values():
        each.join(_PATIENCE)
    return {
        name: {"wait": each.wait, "busy": each.busy, "asked": each.requests, "failed": each.failed}
        for name, each in asking.items()
    }


def main(port: int, pid: int) -> None:
    asking: dict[str, _Asking] = {}
    for line in sys.stdin:
        if line == "begin\n":
            asking = _start(port, pid)
            print("ready", flush=True)
        else:
            print(json.dumps(_stop(asking)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
