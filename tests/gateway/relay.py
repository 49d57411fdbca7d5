"""A process that is a fork of the one of tests/gateway/forking.py, for who starts a process itself and waits for it.

`python -I -S relay.py FD MODULE` asks on the socket FD for a fork with its own files, folder and environment that runs
`main` of the module, and ends as that ends. It imports next to nothing: that takes a hundredth of a second.
"""

import json
import os
import socket
import sys


def main(control: int, module: str) -> int:
    told, status = os.pipe()
    # Not by pathlib, which takes longer to import than all the rest.
    folder = os.getcwd()  # noqa: PTH109
    job: dict[str, object] = {"module": module, "arguments": (), "folder": folder, "environment": dict(os.environ)}
    with socket.socket(fileno=control) as asking:
        socket.send_fds(asking, [json.dumps(job).encode()], [0, 1, 2, status])
    for descriptor in (0, 1, 2, status):  # whoever reads there waits for the fork alone
        os.close(descriptor)
    with os.fdopen(told) as answers:
        answers.readline()
        code = int(answers.readline() or -1)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), sys.argv[2]))
