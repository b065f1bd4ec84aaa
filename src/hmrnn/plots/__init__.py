"""Figures and pictures: a segmentation, metrics or strokes in, a matplotlib figure, SVG or GIF out.

Matplotlib and Pillow are imported only when something is drawn.
"""
