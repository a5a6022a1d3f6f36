"""Gates that are learned while fairseq trains: between the pure mathematics of ``gates`` and fairseq's trainer."""
