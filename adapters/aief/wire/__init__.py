"""The types of AIEF's messages, as they are written and as they are read."""
