"""Probes that test what the Agent Protocol and LangGraph Platform both require."""
