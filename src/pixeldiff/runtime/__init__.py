"""Networks on a CPU without torch."""
