"""The passage: what clients of the JSON-RPC need of a chain and its keys, past the engine.

Nothing that is asked here decides anything: what the engine believes, it has asked for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nonchalant.chain.evm import messages, showing
from nonchalant.errors import BadRequest, SignerFailed, Unreachable
from nonchalant.follow import Follower
from nonchalant.model import Market, Recognised
from nonchalant.ports import Signer
from nonchalant.words import LaneKey


class Passage:
    def __init__(self, followers: Mapping[int, Follower], signers: Mapping[LaneKey, Signer]) -> None:
        self._followers = followers
        self._signers = signers

    async def ask(self, chain_id: int, method: str, params: Sequence[object]) -> bytes:
        """The result as a healthy endpoint gave it; `NodeRefused` as it refused, `Unreachable` if none answers."""
        return await self._follower(chain_id).ask(lambda endpoint: endpoint.rpc(method, params))

    async def market(self, chain_id: int) -> Market:
        return await self._follower(chain_id).market()

    def recognise(self, chain_id: int, raw: bytes) -> Recognised:
        """What these bytes say, and who signed them; `Unencodable` if they are nothing we can read."""
        return self._followers[chain_id].chain.recognise(raw)

    def show(self, raw: bytes) -> dict[str, object]:
        """Signed bytes as nodes write a transaction, without its block."""
        return showing.as_json(raw)

    async def sign_text(self, lane: LaneKey, message: bytes) -> bytes:
        return await self._sign(lane, messages.text_digest(message))

    async def sign_typed(self, lane: LaneKey, document: Mapping[str, object]) -> bytes:
        try:
            digest = messages.typed_digest(document)
        except ValueError as problem:
            raise BadRequest(f"this is no typed data as EIP-712 has it: {problem}") from None
        return await self._sign(lane, digest)

    async def _sign(self, lane: LaneKey, digest: bytes) -> bytes:
        """r, s and 27 or 28, as everybody who verifies expects them."""
        [signature] = await self._signers[lane].sign([digest])
        if len(signature) != 65 or signature[64] > 1:
            raise SignerFailed(f"the signer of {lane.address} gave no 65 bytes of r, s and a recovery bit of 0 or 1")
        return signature[:64] + bytes((signature[64] + 27,))

    def _follower(self, chain_id: int) -> Follower:
        follower = self._followers[chain_id]
        if not follower.started:
            raise Unreachable(f"chain {chain_id} has not been seen yet: {follower.trouble or 'no answer so far'}")
        return follower
