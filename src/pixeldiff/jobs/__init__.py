"""Many images: local runs, video, clusters."""
