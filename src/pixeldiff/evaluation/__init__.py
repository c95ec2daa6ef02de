"""Scores of models on data sets, clean and corrupted: one Benchmark per task, and one loop over samples. No torch."""
