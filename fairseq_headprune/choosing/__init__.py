"""Ways to choose the heads that a mask keeps: pure functions from masks to masks, one method per module."""
