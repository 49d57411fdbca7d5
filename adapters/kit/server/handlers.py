"""Route handlers that are methods."""

from typing import Self


class Handlers:
    """The base of classes whose bound methods Litestar registers: it copies every handler deeply, and a bound method
    with its object. There is one hub, and one of everything else that such an object holds."""

    def __deepcopy__(self, _: object) -> Self:
        return self
