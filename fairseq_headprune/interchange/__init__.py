"""Import a Hugging Face folder as a checkpoint, and compare it with transformers."""
