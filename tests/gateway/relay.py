"""Process that waits for a fork of tests/gateway/forking.py, for callers that start and wait for a process themselves.

`python -I -S relay.py FD MODULE` requests a fork on the socket FD. The fork has the files, folder and environment of
this process and runs `main` of the module. This process ends with the exit code of the fork. It starts in 0.01 s,
because it imports almost nothing.
"""

import json
import os
import socket
import sys


def main(control: int, module: str) -> int:
    reports, status = os.pipe()
    # pathlib takes longer to import than all the rest.
    folder = os.getcwd()  # noqa: PTH109
    job: dict[str, object] = {"module": module, "arguments": (), "folder": folder, "environment": dict(os.environ)}
    with socket.socket(fileno=control) as asking:
        socket.send_fds(asking, [json.dumps(job).encode()], [0, 1, 2, status])
    for descriptor in (0, 1, 2, status):  # a reader of these files then waits only for the fork
        os.close(descriptor)
    with os.fdopen(reports) as answers:
        answers.readline()
        code = int(answers.readline() or -1)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), sys.argv[2]))
