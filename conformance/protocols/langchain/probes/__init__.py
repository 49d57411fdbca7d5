"""Probes that the Agent Protocol and LangGraph Platform share."""
