"""What every contestant is given to do: plain transfers, each told from all others by its value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from coincurve import PrivateKey
from eth_account.hdaccount import key_from_seed, seed_from_mnemonic

from nonchalant.chain.evm.keccak import keccak
from nonchalant.signers import from_mnemonic
from nonchalant.words import Address

CHAIN_ID: Final = 31337
PHRASE: Final = "test test test test test test test test test test test junk"
PATH: Final = "m/44'/60'/0'/0"
GAS: Final = 21_000


class Transfer(NamedTuple):
    lane: int
    sender: Address
    to: Address
    value: int


@lru_cache(maxsize=4)
def payers(lanes: int) -> Sequence[Address]:
    """The accounts that send, one a lane."""
    return [signer.address for signer in from_mnemonic(PHRASE, PATH, lanes)]


@lru_cache(maxsize=4)
def payees(lanes: int) -> Sequence[Address]:
    """Whom each lane pays. Nobody else does, so that a node may tell the payer by them."""
    return ["0x" + keccak(b"payee %d" % lane)[-20:].hex() for lane in range(lanes)]


def keys(lanes: int) -> Sequence[PrivateKey]:
    """The payers' own, for those who sign by themselves."""
    seed = seed_from_mnemonic(PHRASE, "")
    return [PrivateKey(key_from_seed(seed, f"{PATH}/{lane}")) for lane in range(lanes)]


def transfers(lanes: int, count: int, *, first: int = 1) -> Iterator[Transfer]:
    """From all lanes in turn; their values are `first` and upward."""
    senders, receivers = payers(lanes), payees(lanes)
    for number in range(count):
        lane = number % lanes
        yield Transfer(lane, senders[lane], receivers[lane], first + number)
