"""ACP ↔ canonical: messages, questions, answers and the parts they are made of."""
