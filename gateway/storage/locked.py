"""Lock conflict: a database that another gateway uses."""

from babelgate.canonical.fault import FaultCode, FaultError


class Locked(FaultError):
    def __init__(self, what: str) -> None:
        """`what` is locked, in words that hold no password."""
        super().__init__(
            FaultCode.CONFLICT,
            f"{what} is locked: another gateway uses this database. "
            "Stop that gateway, or use another database, as in --database sqlite:///other.db.",
        )
