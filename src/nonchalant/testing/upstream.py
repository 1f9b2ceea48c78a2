"""The real node behind the proxy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import aiohttp
import msgspec

from nonchalant.errors import NodeRefused, Unreachable

Question = tuple[str, Sequence[object]]


class Upstream:
    """Raises `Unreachable` when the node does not answer, and `NodeRefused` when it answers a question with an error."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None)  # the client's patience is what is tested
        self._session = aiohttp.ClientSession(timeout=timeout, headers={"Content-Type": "application/json"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def forward(self, body: bytes) -> bytes:
        """The node's answer to this body, as it is."""
        try:
            async with self._session.post(self._url, data=body) as response:
                return await response.read()
        except aiohttp.ClientError as problem:
            raise Unreachable(f"the node behind the proxy does not answer: {type(problem).__name__}") from problem

    async def ask(self, method: str, *params: object) -> Any:
        return _result(await self._exchange(_written(1, method, params)))

    async def ask_all(self, questions: Sequence[Question]) -> list[Any]:
        """The results in the order of the questions, which travel together."""
        if not questions:
            return []
        answers = await self._exchange([_written(at, method, params) for at, (method, params) in enumerate(questions)])
        if not isinstance(answers, list):
            return [_result(answers)]
        return [_result(answer) for answer in sorted(answers, key=lambda answer: answer["id"])]

    async def _exchange(self, body: object) -> Any:
        return msgspec.json.decode(await self.forward(msgspec.json.encode(body)))


def _written(number: int, method: str, params: Sequence[object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def _result(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        error = answer["error"]
        raise NodeRefused(error["message"], error.get("code"), error.get("data"))
    return answer["result"]
