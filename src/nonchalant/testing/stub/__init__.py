"""A node that costs next to nothing, for measuring what stands before it.

It is honest about nonces, blocks and receipts, and executes nothing: every transaction is a success that used the gas
of a transfer, and every balance is the same.
"""

from nonchalant.testing.stub.ledger import Block, Ledger, Refusal
from nonchalant.testing.stub.server import StubNode

__all__ = ["Block", "Ledger", "Refusal", "StubNode"]
