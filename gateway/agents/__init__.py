"""Agents behind the gateway: detection of their protocols, connections to their servers, failover, and agents in this
process."""
