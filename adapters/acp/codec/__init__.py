"""Conversion between ACP and the canonical model: messages, questions, answers, and their parts."""
