"""Training jobs and what runs them: local processes, Slurm, and workers that share a study."""
