"""Networks on a CPU without torch: edges.py runs them, formats.py encodes maps, folder.py does many pictures."""
