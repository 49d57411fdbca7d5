"""Base class of route handlers that are methods."""

from typing import Self


class Handlers:
    """Base of classes whose bound methods are registered as handlers. Litestar copies every handler deeply, and with a
    bound method its object. This class prevents the copy, because the object holds the hub and other shared state."""

    def __deepcopy__(self, _: object) -> Self:
        return self
