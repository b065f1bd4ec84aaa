"""Files, signals and devices: the parts of the operating system that several rooms use."""
