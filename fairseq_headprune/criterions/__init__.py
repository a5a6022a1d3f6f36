"""Training losses with gates that are learned (what fairseq registers)."""
