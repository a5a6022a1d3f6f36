"""BERT as Hugging Face folders hold it: settings, weights and vocabulary, without the package ``transformers``."""
