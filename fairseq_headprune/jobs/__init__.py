"""A training as one job, and everything that runs jobs: processes, Slurm, workers that share a study."""
