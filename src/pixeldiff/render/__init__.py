"""What is drawn and how it is encoded: drawing, formats, vector lines, detections."""
