"""What a trained network is used for: reading a sequence, and on top of it evaluation, segmentation and sampling."""
