"""Experiments that can be interrupted and resumed at any time: one folder per study, one cell per measured point."""
