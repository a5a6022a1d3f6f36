"""What fairseq finds under ``--arch``."""
