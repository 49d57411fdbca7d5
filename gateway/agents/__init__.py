"""Agents behind the gateway: detection, connection, and failover."""
