"""Types of A2A messages. Each version has a module for its JSON; the others have types that are the same for all
versions."""

from typing import Final

__all__ = ("SPEC", "SPEC_0_3")

SPEC: Final = "https://a2a-protocol.org/v1.0.0/specification/"
"""Specification that comments cite as "specification 1.0", with the number of a section."""
SPEC_0_3: Final = "https://a2a-protocol.org/v0.3.0/specification/"
"""Specification that comments cite as "specification 0.3"."""
