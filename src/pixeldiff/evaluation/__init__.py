"""A data set through a metric: its cache, its report, its curves. No torch."""
