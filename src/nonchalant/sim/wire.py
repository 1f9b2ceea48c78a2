"""How the simulated chain's transactions are written, signed and read. Cheap, but as strict as the real thing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from nonchalant.errors import SignerFailed, Unencodable
from nonchalant.model import Draft, Fees, Recognised, Sealed
from nonchalant.words import Address, Hash, Wei

LARGEST_WORD = 2**256 - 1
SIGNATURE_BYTES = 65


class Effect(StrEnum):
    """What a payload does when it is executed."""

    RUNS = "runs"
    REVERTS = "reverts"  # executed, it reverts; estimated, it does not: the state changed between
    NEVER = "never"  # it reverts in the estimate already
    AFTER = "after"  # it reverts, estimated or executed, until the label it names has run


@dataclass(frozen=True, slots=True)
class Order:
    """What a transaction is to do, under the label by which its executions are counted."""

    label: str
    effect: Effect = Effect.RUNS
    after: str = ""

    def data(self) -> bytes:
        return f"{self.label}|{self.effect}|{self.after}".encode()

    @property
    def root(self) -> str:
        """The label of what was asked for at first: whatever replaced it counts as the same."""
        return root_of(self.label)


PLAIN = Order("")
AGAIN = "~"  # between the root of a label and what tells a replacement from what it replaces


def root_of(label: str) -> str:
    return label.partition(AGAIN)[0]


def read_order(data: bytes) -> Order:
    """The order in a payload's data; a plain transfer (or a filler) carries none."""
    if not data:
        return PLAIN
    label, effect, after = data.decode().split("|")
    return Order(label, Effect(effect), after)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimTx:
    """A signed transaction as a node reads it. Legacy ones offer their gas price as cap and as tip."""

    hash: Hash
    chain_id: int
    sender: Address
    nonce: int
    to: Address | None
    value: Wei
    data: bytes
    gas: int
    max_fee: Wei
    tip: Wei
    order: Order
    data_fee: Wei = 0  # charged for its bytes, beside gas

    @property
    def cost(self) -> Wei:
        """What the account must own for a node to take it."""
        return self.gas * self.max_fee + self.value + self.data_fee

    @property
    def intrinsic_gas(self) -> int:
        return intrinsic_gas(self.data)


def intrinsic_gas(data: bytes) -> int:
    return 21_000 + 16 * len(data)


# Of one transaction, as EIP-7825 has it: every node refuses more, at whatever price.
GAS_CAP = 500_000


def body(draft: Draft) -> bytes:
    """Everything that is signed, always in the same bytes."""
    if not 0 <= draft.payload.value <= LARGEST_WORD:
        raise Unencodable(f"value {draft.payload.value} does not fit")
    payload, fees = draft.payload, draft.fees
    return json.dumps(
        [
            draft.lane.chain_id,
            draft.lane.address,
            draft.nonce,
            payload.to,
            payload.value,
            payload.data.hex(),
            draft.gas,
            fees.max_fee,
            fees.priority,
            payload.access_list,
        ],
        separators=(",", ":"),
    ).encode()


def data_fee(draft: Draft, price: Wei) -> Wei:
    """What a chain that charges this much a byte takes for publishing it; nothing for what cannot be encoded."""
    try:
        return price * len(body(draft))
    except Unencodable:
        return 0


def digest(draft: Draft) -> bytes:
    return hashlib.sha256(body(draft)).digest()


def signature(address: Address, message: bytes) -> bytes:
    return hashlib.sha512(address.encode() + message).digest() + b"\x00"


def seal(draft: Draft, signed: bytes, *, check: bool = True) -> Sealed:
    """Body and signature; `SignerFailed` unless the signature is the account's own, if that is checked."""
    if check and signed != signature(draft.lane.address, digest(draft)):
        raise SignerFailed(f"the signature is not of {draft.lane.address}")
    raw = body(draft) + signed
    return Sealed(raw=raw, hash=hash_of(raw))


def hash_of(raw: bytes) -> Hash:
    return "0x" + hashlib.sha256(raw).hexdigest()


def read(raw: bytes, data_price: Wei = 0) -> SimTx:
    """What a node makes of the bytes; it recovers the sender, so a signature cannot be wrong here."""
    unsigned = raw[:-SIGNATURE_BYTES]
    chain_id, sender, nonce, to, value, data, gas, max_fee, priority, _ = json.loads(unsigned)
    unhexed = bytes.fromhex(data)
    return SimTx(
        hash=hash_of(raw),
        chain_id=chain_id,
        sender=sender,
        nonce=nonce,
        to=to,
        value=value,
        data=unhexed,
        gas=gas,
        max_fee=max_fee,
        tip=max_fee if priority is None else priority,
        order=read_order(unhexed),
        data_fee=data_price * len(unsigned),
    )


def recognise(raw: bytes) -> Recognised:
    """As a node that trusts nobody reads the bytes; `Unencodable` unless their sender signed them."""
    unsigned, signed = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
    try:
        chain_id, sender, nonce, *_, gas, max_fee, priority, _ = json.loads(unsigned)
    except (ValueError, TypeError):
        raise Unencodable("these bytes are no transaction") from None
    if signed != signature(sender, hashlib.sha256(unsigned).digest()):
        raise Unencodable(f"the signature is not of {sender}")
    return Recognised(
        hash=hash_of(raw), chain_id=chain_id, sender=sender, nonce=nonce, gas=gas, fees=Fees(max_fee, priority)
    )


def foreign(chain_id: int, sender: Address, nonce: int, fees: Fees, order: Order, value: Wei = 0) -> SimTx:
    """A transaction that someone else signed with the account's key."""
    data = order.data()
    unsigned = f"{chain_id} {sender} {nonce} {fees} {order} {value}".encode()
    return SimTx(
        hash=hash_of(unsigned),
        chain_id=chain_id,
        sender=sender,
        nonce=nonce,
        to="0x" + "f0" * 20,
        value=value,
        data=data,
        gas=intrinsic_gas(data) + 30_000,
        max_fee=fees.max_fee,
        tip=fees.max_fee if fees.priority is None else fees.priority,
        order=order,
    )


class SimSigner:
    """Holds the key of one account; `down` and `wrong` are for faults to set."""

    def __init__(self, address: Address, *, in_process: bool = False) -> None:
        self.address = address
        self.in_process = in_process  # then it is never `wrong`: nobody checks each of its signatures
        self.down = False
        self.wrong = False
        self.asked = 0

    async def sign(self, digests: Sequence[bytes]) -> Sequence[bytes]:
        self.asked += 1
        if self.down:
            raise SignerFailed("the signer does not answer")
        whose = self.address if not self.wrong else "0x" + "00" * 20
        return [signature(whose, message) for message in digests]
