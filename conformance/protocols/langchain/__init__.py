"""Threads, runs and a store: LangChain's Agent Protocol in both of its layouts, and LangGraph Platform."""
