"""Gates that are learned while fairseq trains: the link between the mathematics in ``gates`` and fairseq's trainer."""
