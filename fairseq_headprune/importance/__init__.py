"""Head importance: estimators (``gradient``, ``confidence``, ``simple``), normalisation and the score file."""
