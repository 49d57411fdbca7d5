"""What others notice of a gateway while somebody strains it: a program, so that no attack slows down who measures it.

    python -m tests.limits.probe PORT PID

From a line `begin` on it asks for `/ok` and for an answer of the agent `echo`, again and again, each on a connection of
its own, and says `ready` after the first answers; at a line `end` it prints what took longest as JSON. One process does
it for all the tests of a gateway: to start one takes longer than many a request under measurement.
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
"""Seconds for one answer."""
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
_ECHO: Final = json.dumps({"assistant_id": "echo", "input": {"message": "hi"}}).encode()


class _Asking(threading.Thread):
    """One question, asked over and over."""

    def __init__(self, ask: Callable[[http.client.HTTPConnection], None], pause: float, port: int, pid: int) -> None:
        super().__init__(daemon=True)
        self.first = threading.Event()
        self.over = threading.Event()
        self.wait = 0.0
        """Seconds that the slowest answer took."""
        self.busy = 0.0
        """The same, of the answer for which the gateway computed longest: the smaller one of its time and of the CPU
        time that the gateway took meanwhile. Other work on the machine makes an answer slow, and does not count."""
        self.asked = 0
        self.failed = ""
        self._ask = ask
        self._pause = pause
        self._port = port
        self._stat = Path(f"/proc/{pid}/stat")

    def _cpu(self) -> float:
        """Seconds that all threads of the gateway have computed."""
        fields = self._stat.read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK

    def run(self) -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE)
            while not (self.over.wait(self._pause) and self.asked):
                before, began = self._cpu(), time.perf_counter()
                self._ask(connection)
                took = time.perf_counter() - began
                if self.asked:  # the first one makes the connection
                    self.wait = max(self.wait, took)
                    self.busy = max(self.busy, min(took, self._cpu() - before))
                self.asked += 1
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


# So much later what holds others up may be noticed; seconds of it are too many. Asked more often, the gateway answers
# nobody but this program for a third of its time.
_PAUSES: Final = {"ok": 0.02, "echo": 0.2}


def _measured(port: int, pid: int) -> dict[str, _Asking]:
    asking = {name: _Asking(ask, _PAUSES[name], port, pid) for name, ask in (("ok", _ok), ("echo", _echo))}
    for each in asking.values():
        each.start()
    for each in asking.values():
        each.first.wait(_PATIENCE)
    return asking


def _told(asking: Mapping[str, _Asking]) -> dict[str, dict[str, object]]:
    for each in asking.values():
        each.over.set()
    for each in asking.values():
        each.join(_PATIENCE)
    return {
        name: {"wait": each.wait, "busy": each.busy, "asked": each.asked, "failed": each.failed}
        for name, each in asking.items()
    }


def main(port: int, pid: int) -> None:
    asking: dict[str, _Asking] = {}
    for line in sys.stdin:
        if line == "begin\n":
            asking = _measured(port, pid)
            print("ready", flush=True)
        else:
            print(json.dumps(_told(asking)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
