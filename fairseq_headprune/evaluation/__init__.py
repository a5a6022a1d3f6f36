"""Evaluation: translating under a head mask, sentence statistics of metrics, and tests of significance."""
