"""Agents behind the gateway: how they are found, connected, and replaced when one fails."""
