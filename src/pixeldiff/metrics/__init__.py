"""Scores and counts. Numpy only."""
