"""Pen strokes: files to points, corpora, batches."""
