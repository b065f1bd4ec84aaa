"""Files, signals and devices: what every room needs of the operating system."""
