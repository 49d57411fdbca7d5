"""Child process of `sandbox`, in which the code of a check or of an agent runs.

It starts as `python -I jail.py`, sets its own limits, and only then reads what to run. On Linux the kernel refuses
sockets to this process and its child processes (seccomp, which needs no privileges). On other systems Python's audit
hook refuses them, which a C library or another program can bypass.
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

# This file is run by its path, so no module of the project can be imported here.

_SOCKETS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""Pairs of a value of AUDIT_ARCH (linux/audit.h) and the number of the system call socket(2), by machine."""
_IO_URING_SETUP = 425
"""Number of the system call io_uring_setup(2), which is refused because it can open sockets without socket(2)."""
_X32 = 0x40000000
"""First number of the x32 system calls, which are the same calls under other numbers. All of them are refused."""
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | 13
"""Results of the seccomp filter: SECCOMP_RET_ALLOW, and SECCOMP_RET_ERRNO with the error EACCES."""


def _filter(arch: int, socket: int) -> bytes:
    """Return a seccomp filter that refuses to open sockets, as a BPF program: a sequence of struct sock_filter {code,
    jt, jf, k} (linux/bpf_common.h)."""
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
    """Forbid sockets to this process. Return the mechanism that refuses them: `kernel` (seccomp), or `hook` (Python's
    audit hook) if seccomp is not available."""
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
    """Limit the memory of this process to `memory` bytes and its CPU time to `seconds`. The parent process limits the
    elapsed time."""
    bounds = (
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CPU, seconds, seconds + 1),  # SIGXCPU at the soft limit tells the parent the cause.
        (resource.RLIMIT_FSIZE, 2**28, 2**28),
        (resource.RLIMIT_CORE, 0, 0),
    )
    for kind, soft, hard in bounds:
        with contextlib.suppress(ValueError, OSError):  # A lower limit may already be set.
            resource.setrlimit(kind, (soft, hard))


# Functions that a question can call


def match(pattern: str, text: str, ignore_case: bool) -> bool:
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    return re.search(pattern, text, flags) is not None


def mismatch(schema: Any, value: Any) -> str | None:
    """Return why a value does not conform to a JSON Schema, in one line, or None if it does."""
    from jsonschema import Draft202012Validator  # Imported only when needed, because the import is slow.

    validator: Any = Draft202012Validator(schema)
    error: Any = min(validator.iter_errors(value), key=_depth, default=None)
    if error is None:
        return None
    return f"{error.json_path}: {str(error.message)[:500]}"


def _depth(error: Any) -> int:
    return len(error.absolute_path)


def check(source: str, name: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """Call the function `check(run)` that `source` defines, and return the verdict as members of a SandboxResult. None
    or True means passed; a returned text or an exception is the reason for a failure. A source without the function is
    `broken`."""
    names: dict[str, Any] = {"__name__": "check", "__file__": name}
    sys.path.insert(0, str(Path.cwd()))
    try:
        exec(compile(source, name, "exec"), names)
        function = names["check"]
    except BaseException as error:
        reason = "it defines no function check(run)" if isinstance(error, KeyError) else _last_line(error)
        return {"broken": True, "why": reason}
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


def serve(output: io.TextIOBase) -> None:
    """Evaluate regular expressions and JSON Schemas for `sandbox.Matcher`. Each line of stdin is a question as a JSON
    object, and each line of `output` its answer. Return when stdin ends."""
    for line in sys.stdin:
        question: dict[str, Any] = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if question["do"] == "match":
                answer["found"] = match(question["pattern"], question["text"], question["ignore_case"])
            else:
                answer["why"] = mismatch(question["schema"], question["value"])
        except Exception as error:
            answer["wrong"] = _last_line(error)
        output.write(json.dumps(answer) + "\n")
        output.flush()


def main() -> None:
    bounds: dict[str, Any] = json.loads(sys.stdin.readline())
    _set_limits(bounds["memory"], bounds["seconds"])
    isolation = _forbid_sockets()
    if "program" in bounds:
        os.execv(sys.executable, [sys.executable, *bounds["program"]])
    # The check must not be able to print an answer, so its stdout is redirected to stderr.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    output.write(json.dumps({"isolation": isolation}) + "\n")
    output.flush()
    if "source" in bounds:
        answer = check(bounds["source"], bounds["name"], bounds["run"])
        output.write(json.dumps(answer) + "\n")
        output.flush()
        os._exit(0)  # Threads that the check left behind are not awaited.
    serve(output)


if __name__ == "__main__":
    main()
