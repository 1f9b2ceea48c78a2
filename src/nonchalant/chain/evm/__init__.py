"""EVM chains: how they are spoken to, and how their transactions are written."""
