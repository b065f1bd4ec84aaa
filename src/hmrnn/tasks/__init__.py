"""What a run learns from: data, model, loss and measure of one kind of data behind one face."""
