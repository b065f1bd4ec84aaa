"""Sequences with labels, with a tag per step, or in pairs: checked, encoded, split and batched."""
