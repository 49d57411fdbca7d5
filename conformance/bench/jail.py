"""Sandbox, child process of `sandbox`: runs what a check runs of its author's or of the agent's. It begins as
`python -I jail.py`, takes its bounds upon itself, and only then reads what to do.

On Linux the kernel refuses sockets to this process and to every program that it starts (seccomp, which needs no
privileges). Elsewhere Python's audit hook does, which a library in C or another program can get around.
"""

import contextlib
import ctypes
import io
import json
import os
import platform
import re
import resource
import struct
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# This file runs by its path: nothing of ours can be imported here.

_SOCKETS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""Of each machine: its AUDIT_ARCH (linux/audit.h) and the number of socket(2)."""
_IO_URING_SETUP = 425
"""It opens sockets, too, without socket(2)."""
_X32 = 0x40000000
"""Numbers from here on are a second table of the same calls."""
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | 13
"""SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO with EACCES."""


def _filter(arch: int, socket: int) -> bytes:
    """The program for the kernel (linux/bpf_common.h): struct sock_filter {code, jt, jf, k} each."""
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    program = [
        (load, 0, 0, 4),  # seccomp_data.arch
        (equal, 0, 5, arch),
        (load, 0, 0, 0),  # seccomp_data.nr
        (at_least, 3, 0, _X32),
        (equal, 2, 0, socket),
        (equal, 1, 0, _IO_URING_SETUP),
        (give, 0, 0, _ALLOW),
        (give, 0, 0, _DENY),
    ]
    return b"".join(struct.pack("HBBI", *each) for each in program)


def _forbid_sockets() -> str:
    """How it was done: `kernel` or `hook`."""
    arch, socket = _SOCKETS.get(platform.machine(), (0, 0))
    if sys.platform == "linux" and arch:
        code = _filter(arch, socket)
        libc = ctypes.CDLL(None, use_errno=True)
        buffer = ctypes.create_string_buffer(code, len(code))
        program = ctypes.create_string_buffer(struct.pack("HP", len(code) // 8, ctypes.addressof(buffer)))
        set_no_new_privs, set_seccomp, mode_filter = 38, 22, 2
        if libc.prctl(set_no_new_privs, 1, 0, 0, 0) == 0 and libc.prctl(set_seccomp, mode_filter, program, 0, 0) == 0:
            return "kernel"

    def refuse(event: str, _: tuple[Any, ...]) -> None:
        if event.startswith("socket.") and event != "socket.gethostname":
            raise PermissionError("a check has no network")

    sys.addaudithook(refuse)
    return "hook"


def _set_limits(memory: int, seconds: int) -> None:
    """`memory` in bytes; `seconds` of CPU time, beside the clock that the parent looks at."""
    bounds = (
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CPU, seconds, seconds + 1),  # SIGXCPU at the first, which tells the parent why
        (resource.RLIMIT_FSIZE, 2**28, 2**28),
        (resource.RLIMIT_CORE, 0, 0),
    )
    for kind, soft, hard in bounds:
        with contextlib.suppress(ValueError, OSError):  # a lower bound is there already
            resource.setrlimit(kind, (soft, hard))


# What can be asked for


def match(pattern: str, text: str, ignore_case: bool) -> bool:
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    return re.search(pattern, text, flags) is not None


def mismatch(schema: Any, value: Any) -> str | None:
    """Why a value does not fit a schema, in one line."""
    from jsonschema import Draft202012Validator  # only those that need it wait for its import

    validator: Any = Draft202012Validator(schema)
    error: Any = min(validator.iter_errors(value), key=_depth, default=None)
    if error is None:
        return None
    return f"{error.json_path}: {str(error.message)[:500]}"


def _depth(error: Any) -> int:
    return len(error.absolute_path)


def check(source: str, name: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """Call the author's `check(run)`. Nothing or True is a pass, a text is why not, and so is what it raises."""
    names: dict[str, Any] = {"__name__": "check", "__file__": name}
    sys.path.insert(0, str(Path.cwd()))
    try:
        exec(compile(source, name, "exec"), names)
        function = names["check"]
    except BaseException as error:
        said = "it defines no function check(run)" if isinstance(error, KeyError) else _last_line(error)
        return {"broken": True, "why": said}
    files = {path: Path(path) for path in run["artifacts"]}
    try:
        found = function(SimpleNamespace(**{**run, "artifacts": files}))
    except MemoryError:
        return {"passed": False, "why": "it took more memory than it may"}
    except BaseException as error:
        return {"passed": False, "why": _last_line(error)}
    if found is None or found is True:
        return {"passed": True}
    return {"passed": False, "why": found if isinstance(found, str) else f"check(run) returned {found!r}"[:500]}


def _last_line(error: BaseException) -> str:
    lines = traceback.format_exception_only(type(error), error)
    frames = traceback.extract_tb(error.__traceback__)
    at = f" (line {frames[-1].lineno})" if len(frames) > 1 and frames[-1].lineno else ""
    return f"{lines[-1].strip()}{at}"[:1000]


def serve(told: io.TextIOBase) -> None:
    """One answer a line, until there are no more questions."""
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if asked["do"] == "match":
                answer["found"] = match(asked["pattern"], asked["text"], asked["ignore_case"])
            else:
                answer["why"] = mismatch(asked["schema"], asked["value"])
        except Exception as error:
            answer["wrong"] = _last_line(error)
        told.write(json.dumps(answer) + "\n")
        told.flush()


def main() -> None:
    bounds: dict[str, Any] = json.loads(sys.stdin.readline())
    _set_limits(bounds["memory"], bounds["seconds"])
    isolation = _forbid_sockets()
    if "program" in bounds:
        os.execv(sys.executable, [sys.executable, *bounds["program"]])
    # What a check prints must not be taken for an answer.
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    told.write(json.dumps({"isolation": isolation}) + "\n")
    told.flush()
    if "source" in bounds:
        answer = check(bounds["source"], bounds["name"], bounds["run"])
        told.write(json.dumps(answer) + "\n")
        told.flush()
        os._exit(0)  # threads that the check left behind are not waited for
    serve(told)


if __name__ == "__main__":
    main()
