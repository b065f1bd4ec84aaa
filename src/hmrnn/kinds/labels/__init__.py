"""Labelled sequences: labels, tags, pairs, numbers and forecasts."""
