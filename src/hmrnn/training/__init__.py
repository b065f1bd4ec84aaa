"""The training loop, one update, detectors, capture, averaging, run directory, resume."""
