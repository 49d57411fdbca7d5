"""Benchmark: gives the same tasks to several agents through AIEF's `/ap/v1` and compares their results.

- `task` defines the format of task files, and `suite` reads and checks them.
- `attempt` gives one task to one agent through `server`, and judges the result by `check`.
- `sandbox` runs code and patterns that come from task files or agents.
- `run` makes all attempts, and `journal` records them.
- `summary` computes figures with `stats`, and `report` shows them.
- `session` combines all of these.
"""
