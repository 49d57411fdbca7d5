"""Request bodies for servers of OpenAI's APIs, built from a conversation."""
