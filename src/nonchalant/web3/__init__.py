"""web3.py over a running service: what managed accounts send goes through Nonchalant, all else to one's own node.

    w3 = Web3(HTTPProvider("http://127.0.0.1:8545"))
    attach(w3, BlockingClient())
    hash = w3.eth.send_transaction({"from": account, "to": …, "value": …})
    receipt = w3.eth.wait_for_transaction_receipt(hash)  # also after a bump

Needs web3.py 7.6 or later: `pip install 'nonchalant[web3]'`.
"""

try:
    import web3 as _web3  # noqa: F401 - what all of this is for
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError("nonchalant.web3 needs web3.py: pip install 'nonchalant[web3]'") from error

from nonchalant.web3.answers import SECONDS_TO_SIGN, NotSent
from nonchalant.web3.middleware import attach, detach

__all__ = ["SECONDS_TO_SIGN", "NotSent", "attach", "detach"]
