"""How results look: tables for terminals, READMEs and papers, and the papers' figures."""
