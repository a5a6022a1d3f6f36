"""Read BERT from Hugging Face folders (settings, weights, vocabulary) without the package ``transformers``."""
