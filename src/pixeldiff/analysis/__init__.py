"""Statistics and plots of what binary networks learn."""
