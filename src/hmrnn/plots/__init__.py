"""Figures: results in, matplotlib figures or SVG out."""
