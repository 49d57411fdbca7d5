"""Start of a command that ends with the gateway (Linux): `python launcher.py PROGRAM ARGUMENT …`.

The kernel sends SIGTERM to the program when the gateway ends, even if it was killed. This setting survives `exec`, so
the program runs in the process of this launcher.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

_SET_PDEATHSIG: Final = 1
"""Number of the option PR_SET_PDEATHSIG in linux/prctl.h, by which a process gets a signal when its parent ends."""


def end_with_parent(number: int) -> None:
    """Let the kernel send the signal `number` to this process when its parent ends. Does nothing except on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, number)


def main(command: Sequence[str]) -> NoReturn:
    """Replace this process by a command, or end it with status 127 if that cannot be executed."""
    end_with_parent(signal.SIGTERM)
    try:
        os.execvp(command[0], [*command])
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
