"""Networks without torch: opened, run, drawn, streamed and timed."""
