"""The models that fairseq registers for ``--arch``."""
