"""Folder through which the worker processes of one gateway share their metrics.

prometheus-client reads the name of the folder from `PROMETHEUS_MULTIPROC_DIR` when it is imported, in each worker. A
value that the gateway inherits is ignored: if several gateways shared a folder, their metrics would be mixed."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_VARIABLES: Final = (VARIABLE, VARIABLE.lower())


def clear_variable() -> None:
    """Remove `PROMETHEUS_MULTIPROC_DIR` from the environment, because that folder may belong to another process.

    Must be called before prometheus_client is imported."""
    for name in _VARIABLES:
        os.environ.pop(name, None)


@contextmanager
def private_folder() -> Generator[str]:
    """Return a context manager that creates an empty folder, sets `PROMETHEUS_MULTIPROC_DIR` to it, and removes it at
    the end.

    Workers that start inside the context share this folder."""
    clear_variable()
    with tempfile.TemporaryDirectory(prefix="babelgate-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[VARIABLE] = folder
        try:
            yield folder
        finally:
            clear_variable()
