"""The training loop, one update and its terms, capture, run directory, resume."""
