"""Learning gates while fairseq trains: connects the mathematics in ``gates`` with fairseq's trainer."""
