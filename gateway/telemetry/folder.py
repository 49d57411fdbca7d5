"""Folder in which several workers share their metrics.

prometheus-client reads its variable when it is imported, in each worker. A folder that several gateways share would mix
their metrics, so a variable of the environment is never used.
"""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_VARIABLES: Final = (VARIABLE, VARIABLE.lower())


def clear_variable() -> None:
    """Remove the variable of the metrics folder from the environment, because the folder may belong to another process.
    Must be called before prometheus_client is imported."""
    for name in _VARIABLES:
        os.environ.pop(name, None)


@contextmanager
def private_folder() -> Generator[str]:
    """Create an empty folder for the workers that are started meanwhile, and remove it at the end."""
    clear_variable()
    with tempfile.TemporaryDirectory(prefix="babelgate-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[VARIABLE] = folder
        try:
            yield folder
        finally:
            clear_variable()
