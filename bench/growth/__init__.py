"""What a transaction costs when there is more of everything: settled ones, lanes, pending ones."""
