"""The web page and its API (extra `serve`): app.py answers, uploads.py reads what is sent, page/ is what is seen."""
