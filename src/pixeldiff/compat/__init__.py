"""Drop-ins for the interfaces people already call: controlnet.py (image generation)."""
