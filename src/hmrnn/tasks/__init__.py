"""What a run learns from: the data, model, loss and measure of each kind of data, behind one face."""
