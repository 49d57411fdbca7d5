"""Writing of messages and their streams from the records of a run."""
