"""The benchmark: our throughput beside the limit of the node it runs on, in one run."""
