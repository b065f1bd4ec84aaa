"""Small layers on a CPU: every row at every step, by dense products in NumPy, forward and backward."""
