"""A single sequence on a CPU without gradients, in NumPy: a whole sequence, or one step after the other."""
