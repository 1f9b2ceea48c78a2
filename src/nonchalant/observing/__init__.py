"""Watching a node at work: what is counted, measured and traced. It decides nothing, and nothing waits for it."""
