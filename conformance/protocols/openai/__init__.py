"""The protocols of OpenAI's API: chat completions, and responses, which others know as Open Responses."""
