"""Agents in separate processes: agents in Python (`process: true`), and servers that the gateway starts (`command`)."""
