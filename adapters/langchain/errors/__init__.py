"""Conversion between faults and the errors of LangGraph and the Agent Protocol: error responses, and errors of runs."""
