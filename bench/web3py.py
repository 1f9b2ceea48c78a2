"""What a user would write with web3.py: sign, send, take the hash, next. Nobody looks whether anything was executed."""

from __future__ import annotations

from collections import defaultdict

from eth_account.signers.local import LocalAccount
from eth_utils.address import to_checksum_address
from web3 import HTTPProvider, Web3

from bench.order import Order, Outcome, Stopwatch
from bench.signing import MAX_FEE, TIP
from bench.work import CHAIN_ID, GAS, keys, transfers


def local_nonce(order: Order) -> Outcome:
    """The nonces are counted here."""
    nonces: dict[int, int] = defaultdict(int)
    w3, accounts = _ready(order)
    watch = Stopwatch(order)
    for transfer in transfers(order.lanes, order.count):
        _send(w3, accounts[transfer.lane], nonces[transfer.lane], transfer.to, transfer.value)
        nonces[transfer.lane] += 1
    return watch.stop()


def asked_count(order: Order) -> Outcome:
    """The node is asked for each nonce."""
    w3, accounts = _ready(order)
    watch = Stopwatch(order)
    for transfer in transfers(order.lanes, order.count):
        account = accounts[transfer.lane]
        nonce = w3.eth.get_transaction_count(account.address, "pending")
        _send(w3, account, nonce, transfer.to, transfer.value)
    return watch.stop()


def _ready(order: Order) -> tuple[Web3, list[LocalAccount]]:
    w3 = Web3(HTTPProvider(order.url))
    return w3, [w3.eth.account.from_key(key.secret) for key in keys(order.lanes)]


def _send(w3: Web3, account: LocalAccount, nonce: int, to: str, value: int) -> None:
    signed = account.sign_transaction(
        {
            "type": 2,
            "chainId": CHAIN_ID,
            "nonce": nonce,
            "to": to_checksum_address(to),
            "value": value,
            "gas": GAS,
            "maxFeePerGas": MAX_FEE,
            "maxPriorityFeePerGas": TIP,
        }
    )
    w3.eth.send_raw_transaction(signed.raw_transaction)
