"""Torch modules. They know neither files nor command-line flags."""
