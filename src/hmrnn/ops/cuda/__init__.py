"""The GPU engine: Triton kernels for the forward and the backward pass, and a cache of captured graphs."""
