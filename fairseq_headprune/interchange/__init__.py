"""Whole models in and out: a Hugging Face folder becomes a checkpoint, is compared with transformers, and goes back."""
