"""The bench: gives the same tasks to several agents through AIEF's `/ap/v1`, and says how they compare.

`task` is what people write, `suite` reads and checks it. `attempt` puts one task to one agent over `server`, and judges
what came back by `check`; whatever of that is foreign code or a foreign pattern runs in the `sandbox`. `run` makes all
attempts, `journal` keeps them, `summary` turns them into figures with the `stats` that belong to them, and `report`
shows those. `session` is all of it together.
"""
