"""Speed and size of models."""
