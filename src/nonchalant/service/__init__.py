"""The service: REST over one engine.

Bare ASGI, because a framework's hundred microseconds a call would be more than the engine itself spends on a
transaction, and its half second of imports a quarter of the time to be ready.
"""
