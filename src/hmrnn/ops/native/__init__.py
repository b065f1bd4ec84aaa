"""The CPU engine: a library in C++, compiled for the machine, and what calls it."""
