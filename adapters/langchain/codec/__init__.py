"""Conversion between the values of LangGraph Platform and the Agent Protocol and canonical ones: messages, content,
states, questions."""
