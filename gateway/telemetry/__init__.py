"""Telemetry of the gateway: metrics for Prometheus, OpenTelemetry traces, JSON log lines, and the watchdog of the event
loop."""
