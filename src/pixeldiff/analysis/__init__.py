"""What networks have learned: patterns, spectra, plots."""
