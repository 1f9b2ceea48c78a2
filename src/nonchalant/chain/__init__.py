"""The chains: one package a family, each behind the ports `Endpoint` and `Chain`."""
