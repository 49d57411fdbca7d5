"""Values of LangGraph Platform and the Agent Protocol ↔ canonical: messages, content, states, questions."""
