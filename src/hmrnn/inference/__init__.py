"""Feeding sequences to a trained network: evaluate, sample, segment, dynamic evaluation, files of any size."""
