"""The methods that are answered here. The reference's table is written from this; whatever else is asked goes to a node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from nonchalant.service.rpc import accounts, hashes, raw, sending, signing
from nonchalant.service.rpc.asked import Asked
from nonchalant.service.rpc.passing import pass_on


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    does: str
    handle: Callable[[Asked], Awaitable[object]]
    writes: bool = False  # a client that is told to try again might do it twice


_TYPED: Final = "Signs typed data (EIP-712) for a key with the scope `sign`; its domain must not name another chain."

METHODS: Final = {
    method.name: method
    for method in (
        Method(
            "eth_sendTransaction",
            "Sends from a managed account, and answers with the hash of what is signed.",
            sending.send_transaction,
            writes=True,
        ),
        Method("eth_accounts", "The managed accounts that the key may use on this chain.", accounts.accounts),
        Method("eth_requestAccounts", "The same.", accounts.accounts),
        Method("eth_chainId", "The chain of the path.", accounts.chain_id),
        Method("net_version", "The same, in decimal.", accounts.net_version),
        Method(
            "eth_getTransactionCount",
            "Of a managed account, for `latest` and `pending`: the next nonce that nothing accepted will take. Of others, and "
            "for other blocks, what a node says.",
            accounts.transaction_count,
        ),
        Method(
            "eth_getTransactionByHash",
            "Of what was sent here: the payload as it was asked for, at the place of whatever ran.",
            hashes.transaction_by_hash,
        ),
        Method(
            "eth_getTransactionReceipt",
            "Of what was sent here: the receipt of whatever ran, under the hash that was answered first.",
            hashes.receipt,
        ),
        Method(
            "eth_sendRawTransaction",
            "Of a managed account only at a nonce that is reserved, and then recorded; of others, handed to a node.",
            raw.send_raw,
            writes=True,
        ),
        Method("eth_sign", "Signs a text (EIP-191) for a key with the scope `sign`.", signing.sign),
        Method("personal_sign", "The same, with its params the other way round.", signing.personal_sign),
        Method("eth_signTypedData", _TYPED, signing.sign_typed),
        Method("eth_signTypedData_v3", "The same.", signing.sign_typed),
        Method("eth_signTypedData_v4", "The same.", signing.sign_typed),
        Method(
            "eth_signTransaction",
            "Always refused: nobody would know what uses the nonce.",
            signing.sign_transaction,
        ),
    )
}


async def answer(asked: Asked) -> object:
    method = METHODS.get(asked.question.method)
    return await (pass_on(asked) if method is None else method.handle(asked))
