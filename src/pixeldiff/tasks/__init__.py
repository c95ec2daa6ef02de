"""What each task needs to be trained and scored: data, loss, evaluation."""
