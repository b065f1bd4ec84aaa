"""Reading: feed a sequence and get predictions, boundaries and states chunk by chunk; sampling, scoring, embedding."""
