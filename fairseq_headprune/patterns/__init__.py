"""Patterns of attention: made-up maps of each pattern, annotated maps, and the network that tells them apart."""
