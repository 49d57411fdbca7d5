"""Program of a job's process: runs a command of Babelgate, and ends with the gateway.

The gateway holds the other end of its stdin. When that is closed, because the gateway was killed, the process group is
ended.
"""

import os
import runpy
import signal
import sys
import threading
from typing import Final

try:
    import resource
except ImportError:  # Windows
    resource = None

_NICENESS: Final = 10
"""Niceness of a job's process, so that callers of the gateway have priority. Chosen."""
_MAX_FILE: Final = 128 * 2**20
"""Maximum size of a file that a job writes, in bytes. Chosen: the report of four protocols takes 8 MB."""


def main() -> None:
    """Run the Babelgate command in the arguments of the process, such as `check http://…`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have made the gateway ignore it
    os.umask(0o077)
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE, _MAX_FILE))
    threading.Thread(target=_end_with_gateway, daemon=True).start()
    runpy.run_module("babelgate", run_name="__main__", alter_sys=True)


def _end_with_gateway() -> None:
    while os.read(sys.stdin.fileno(), 1024):  # not sys.stdin.read, whose lock would be held at the end of the process
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
