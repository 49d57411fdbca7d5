"""Faults for a database that is locked by another gateway."""

from babelgate.canonical.fault import FaultCode, FaultError


class Locked(FaultError):
    def __init__(self, what: str) -> None:
        """Create the fault. `what` is the locked file or URL, without a password."""
        super().__init__(
            FaultCode.CONFLICT,
            f"{what} is locked: another gateway uses this database. "
            "Stop that gateway, or use another database, as in --database sqlite:///other.db.",
        )


class Entering(Locked):
    """Fault for a gateway that could not start because another gateway of its cluster held the start lock for too
    long."""

    def __init__(self, what: str, waited: str) -> None:
        """Create the fault. `what` is the URL, without a password, and `waited` the time for which this gateway has
        waited, as in `30s`."""
        FaultError.__init__(
            self,
            FaultCode.CONFLICT,
            f"{what}: another gateway of the cluster is starting, and has not finished within {waited}. It may be "
            "migrating the tables to its release. Start this gateway again when that one is ready.",
        )
