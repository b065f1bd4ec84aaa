"""The CPU engine: no product is made for a row that copies, forwards, backwards or in the weight gradients."""
