"""The CPU engine, which multiplies only for rows that change: forward, backward and in the weight gradients."""
