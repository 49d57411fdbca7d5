"""Base class of route handlers that are methods."""

from typing import Self


class Handlers:
    """Base of classes whose bound methods are registered as handlers. Litestar makes a deep copy of every handler,
    which would include the object of a bound method. This class prevents that copy, because the object holds the hub
    and other shared state."""

    def __deepcopy__(self, _: object) -> Self:
        return self
