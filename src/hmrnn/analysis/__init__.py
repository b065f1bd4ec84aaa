"""Plain results, without networks: segmentations, scores of segment ends, gold ends, compression baselines."""
