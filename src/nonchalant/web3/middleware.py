"""The middleware itself: it asks the user's node and the service, in the order that `answers` wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast, overload

from web3 import AsyncWeb3, Web3
from web3.middleware import Web3Middleware

from nonchalant.client import BlockingClient, Client
from nonchalant.web3.answers import SECONDS_TO_SIGN, Answers, AskNode, Response

if TYPE_CHECKING:
    from web3.types import (
        AsyncMakeBatchRequestFn,
        AsyncMakeRequestFn,
        MakeBatchRequestFn,
        MakeRequestFn,
        RPCEndpoint,
        RPCResponse,
    )

NAME: Final = "nonchalant"
GAS_ESTIMATE: Final = "gas_estimate"  # as web3.py calls its own

Ask = Callable[[str, Any], Any]


@overload
def attach(w3: Web3, client: BlockingClient, *, seconds_to_sign: float = ...) -> None: ...
@overload
def attach(w3: AsyncWeb3[Any], client: Client, *, seconds_to_sign: float = ...) -> None: ...
def attach(
    w3: Web3 | AsyncWeb3[Any], client: BlockingClient | Client, *, seconds_to_sign: float = SECONDS_TO_SIGN
) -> None:
    """Have all that managed accounts send go through the service, and be found by the hash that was answered.

    Where no nonce is given out within `seconds_to_sign`, the transaction is called off and `NotSent` raised.
    """
    if isinstance(w3, AsyncWeb3) is not isinstance(client, Client):
        raise TypeError("Web3 goes with a BlockingClient, AsyncWeb3 with a Client")
    answers = Answers(seconds_to_sign=seconds_to_sign)

    def made(w3: Web3 | AsyncWeb3[Any]) -> Web3Middleware:
        return Middleware(w3, client, answers)

    # Innermost: names are resolved, prices filled in and answers wrapped by web3.py's own, around ours.
    onion = w3.middleware_onion
    onion.inject(cast("type[Web3Middleware]", made), NAME, layer=0)
    if GAS_ESTIMATE in onion:
        # Only what goes to one's own node is estimated there: for what we send, the service does it, when its turn has come.
        estimate = onion.get(GAS_ESTIMATE)
        onion.remove(GAS_ESTIMATE)
        onion.inject(cast("type[Web3Middleware]", estimate), GAS_ESTIMATE, layer=0)


def detach(w3: Web3 | AsyncWeb3[Any]) -> None:
    """Have everything go to one's own node again."""
    w3.middleware_onion.remove(NAME)


class Middleware(Web3Middleware):
    def __init__(self, w3: Web3 | AsyncWeb3[Any], client: BlockingClient | Client, answers: Answers) -> None:
        super().__init__(w3)
        self._client = client
        self._answers = answers

    def wrap_make_request(self, make_request: MakeRequestFn) -> MakeRequestFn:
        return cast("MakeRequestFn", lambda method, params: self._answer(make_request, method, params))

    def wrap_make_batch_request(self, make_batch_request: MakeBatchRequestFn) -> MakeBatchRequestFn:
        def one(method: RPCEndpoint, params: Any) -> RPCResponse:
            response = make_batch_request([(method, params)])
            return response[0] if isinstance(response, list) else response

        def batch(calls: list[tuple[RPCEndpoint, Any]]) -> list[RPCResponse] | RPCResponse:
            if not any(self._answers.to(*call) for call in calls):
                return make_batch_request(calls)
            return [cast("RPCResponse", self._answer(one, *call)) for call in calls]

        return batch

    async def async_wrap_make_request(self, make_request: AsyncMakeRequestFn) -> AsyncMakeRequestFn:
        async def answered(method: RPCEndpoint, params: Any) -> RPCResponse:
            return cast("RPCResponse", await self._async_answer(make_request, method, params))

        return answered

    async def async_wrap_make_batch_request(
        self, make_batch_request: AsyncMakeBatchRequestFn
    ) -> AsyncMakeBatchRequestFn:
        async def one(method: RPCEndpoint, params: Any) -> RPCResponse:
            response = await make_batch_request([(method, params)])
            return response[0] if isinstance(response, list) else response

        async def batch(calls: list[tuple[RPCEndpoint, Any]]) -> list[RPCResponse] | RPCResponse:
            if not any(self._answers.to(*call) for call in calls):
                return await make_batch_request(calls)
            return [cast("RPCResponse", await self._async_answer(one, *call)) for call in calls]

        return batch

    def _answer(self, make_request: Any, method: str, params: Any) -> Response:
        answer = self._answers.to(method, params)
        if answer is None:
            return cast("Response", make_request(method, params))
        client = cast("BlockingClient", self._client)
        told: Any = None
        try:
            while True:
                step = answer.send(told)
                told = make_request(step.method, step.params) if isinstance(step, AskNode) else client.do(step)
        except StopIteration as end:
            return cast("Response", end.value)

    async def _async_answer(self, make_request: Any, method: str, params: Any) -> Response:
        answer = self._answers.to(method, params)
        if answer is None:
            return cast("Response", await make_request(method, params))
        client = cast("Client", self._client)
        told: Any = None
        try:
            while True:
                step = answer.send(told)
                if isinstance(step, AskNode):
                    told = await make_request(step.method, step.params)
                else:
                    told = await step(client)
        except StopIteration as end:
            return cast("Response", end.value)
