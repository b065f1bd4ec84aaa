"""Handwriting: everything about pen strokes, from their files to their segments."""
