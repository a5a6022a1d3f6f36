"""What is in a Hugging Face folder of a translation model: configuration, weights, vocabulary, and how text is cut."""
