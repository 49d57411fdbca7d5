"""The types of A2A's messages: of each version, and in no version's spelling."""

from typing import Final

__all__ = ("SPEC", "SPEC_0_3")

SPEC: Final = "https://a2a-protocol.org/v1.0.0/specification/"
"""What comments call "specification 1.0", with the number of a section."""
SPEC_0_3: Final = "https://a2a-protocol.org/v0.3.0/specification/"
