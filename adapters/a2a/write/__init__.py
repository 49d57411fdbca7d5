"""Conversion of a task's records to the tasks and updates that callers of A2A receive."""
