"""The console in a real browser: journeys of its users, accessibility, and what no agent may do to a page."""
