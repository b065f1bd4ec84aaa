"""Text: everything about it, from its files to its segments."""
