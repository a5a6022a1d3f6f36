"""Read a translation model's Hugging Face folder: configuration, weights, vocabulary and tokenisation."""
