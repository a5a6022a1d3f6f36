"""Head importance: estimators (``gradient``, ``confidence``, ``part_weights``), normalisation and settings."""
