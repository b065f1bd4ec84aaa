"""Plain results without networks: segmentations, boundary scores, gold boundaries, yardsticks."""
