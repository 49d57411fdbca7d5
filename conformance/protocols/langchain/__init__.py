"""Checks of two protocols with threads, runs and a store: LangChain's Agent Protocol in both of its layouts, and
LangGraph Platform."""
