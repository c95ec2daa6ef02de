"""Pixel differences as operators and layers, float and binary."""
