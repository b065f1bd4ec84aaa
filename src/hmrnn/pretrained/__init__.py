"""Trained models: load, use and export them; the bundled ones."""
