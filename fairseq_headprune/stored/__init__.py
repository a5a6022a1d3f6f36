"""What a checkpoint file may hold: nothing but data, read by torch's safe loader and checked when it is read."""
