"""Types of AIEF's messages: those that the gateway writes, and those that it reads from other servers."""
