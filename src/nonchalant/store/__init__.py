"""The stores: one contract (`ports.Store`), one module a database, named SQL."""
