"""Code that the clients of all protocols share."""
