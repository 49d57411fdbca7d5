"""One folder for each protocol: how its agents are found, what probes see of them, and the probes."""
