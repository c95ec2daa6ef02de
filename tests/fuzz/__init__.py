"""Damaged files for every reader: python -m tests.fuzz --count 100000 --seed 0."""
