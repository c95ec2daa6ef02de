"""The web page and its API (extra `serve`): app.py answers, uploads.py reads requests, page/ holds the page."""
