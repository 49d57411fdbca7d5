"""PostgreSQL whose storage needs some milliseconds per flush, as a cloud disk or a synchronous standby does.

The bench starts its own server. A preloaded library (`LD_PRELOAD`) replaces `fdatasync` with a function that waits
first. The library is compiled when it is needed.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.postgres_server import PostgresServer, postgres_server

COMPILER: Final = "cc"
_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int fd) {
    static int (*next)(int);
    if (!next) next = (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
    usleep(atoi(getenv("BENCH_FLUSH_US")));
    return next(fd);
}
"""


def has_compiler() -> bool:
    return shutil.which(COMPILER) is not None


@contextmanager
def slow_server(milliseconds: float) -> Generator[PostgresServer]:
    """Start a server whose flushes take this many milliseconds longer. Needs a C compiler."""
    with tempfile.TemporaryDirectory(prefix="babelgate-flush-") as place:
        folder = Path(place)
        folder.chmod(0o755)  # the server may run as another user
        source, library = folder / "flush.c", folder / "flush.so"
        source.write_text(_SOURCE, encoding="utf-8")
        subprocess.run([COMPILER, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
        environment = {"LD_PRELOAD": str(library), "BENCH_FLUSH_US": str(int(milliseconds * 1000))}
        with postgres_server(environment, wal_sync_method="fdatasync") as server:
            yield server
