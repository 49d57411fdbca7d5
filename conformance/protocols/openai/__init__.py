"""Checks of OpenAI's APIs: chat completions, and responses, which are also known as Open Responses."""
