"""Read Hugging Face folders of translation models and of BERT: configuration, weights, vocabulary, tokenisation."""
