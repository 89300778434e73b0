"""Accuracy: what conversion does to a task's metric, on real data with trained weights."""
