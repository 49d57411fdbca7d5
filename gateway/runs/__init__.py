"""A run from its submission to its end, and what is left of it: expiry, webhooks, deletion."""
