"""JSON-RPC for ordinary clients: they send from managed accounts as from a node's own, and read the chain through us."""
