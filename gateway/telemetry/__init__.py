"""Telemetry of the gateway: metrics for Prometheus, log lines as JSON, and the watchdog of the event loop."""
