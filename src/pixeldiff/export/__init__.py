"""Networks of the torch world as files that run without it."""
