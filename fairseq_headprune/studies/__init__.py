"""Experiments that can be stopped at any moment and continued: one folder a study, one cell a measured point."""
