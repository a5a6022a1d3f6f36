"""How fast and how large models are."""
