"""Import a Hugging Face folder as a checkpoint, compare it with transformers, and export it again."""
