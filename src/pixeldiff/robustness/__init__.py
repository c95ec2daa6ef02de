"""Damaged pictures, and what networks make of them. No torch."""
