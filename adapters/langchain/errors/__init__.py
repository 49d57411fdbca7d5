"""Errors of LangGraph and the Agent Protocol ↔ faults."""
