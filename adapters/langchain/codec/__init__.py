"""LangGraph Platform and the Agent Protocol ↔ canonical."""
