"""Conversion of messages, content, states and questions between canonical values and those of LangGraph Platform and
the Agent Protocol."""
