"""Safe reading of checkpoint files: only data, by torch's safe loader, and checked when read."""
