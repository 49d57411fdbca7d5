"""ACP ↔ canonical model: messages, questions, answers, and their parts."""
