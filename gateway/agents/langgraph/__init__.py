"""Agents that are LangGraph graphs in this process."""
