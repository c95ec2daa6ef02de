"""Arrays from disk: what data sets, maps, truth and lists hold. No torch."""
