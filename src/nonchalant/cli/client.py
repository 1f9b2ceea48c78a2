"""The service as the command line sees it."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

from nonchalant.errors import NonchalantError
from nonchalant.reaching import read_url
from nonchalant.words import LIVE_STATES

ANSWER_SECONDS: Final = 30.0  # beyond what a call was asked to wait
LONG_POLL: Final = 10.0
RETRY_SECONDS: Final = 0.5

Shown = dict[str, Any]


class Tell(Protocol):
    def __call__(self, now: Shown, /, *, explain: bool) -> None: ...


class ServiceUnreachable(NonchalantError):
    """The service does not answer."""


class Refusal(NonchalantError):
    """The service answered with a problem."""

    def __init__(self, status: int, code: str, detail: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{detail} ({code})")
        self.status = status
        self.data = data or {}  # what else was told


class Client:
    """One service, asked call by call."""

    def __init__(self, url: str, key: str | None = None) -> None:
        parts = read_url(url)
        self.url = url.rstrip("/")
        self._credentials = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path.rstrip("/")
        self._connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection

    def get(self, path: str, query: Mapping[str, object] | None = None, *, waits: float = 0.0) -> Shown:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return self._call("GET", f"{path}?{urlencode(given)}" if given else path, waits=waits)

    def post(self, path: str, body: Mapping[str, object] | None = None, *, waits: float = 0.0) -> Shown:
        """A wish; the same one again does no harm."""
        try:
            return self._call("POST", path, body=body or {}, waits=waits)
        except _Interrupted as error:
            raise ServiceUnreachable(f"{error}; it may have been heard: look, and repeat the command") from None

    def make(self, path: str, body: Mapping[str, object]) -> Shown:
        """Something new, each time."""
        try:
            return self._call("POST", path, body=body)
        except _Interrupted as error:
            raise ServiceUnreachable(f"{error}; it may have been made: look before you repeat the command") from None

    def wish(self, tx_id: str, verb: str, body: Mapping[str, object] | None = None) -> Shown:
        return self.post(f"/v1/transactions/{quote(tx_id, safe='')}/{verb}", body)

    def transaction(self, tx_id: str, *, wait: float = 0.0, after: int | None = None) -> Shown:
        query = {"wait": f"{wait:.3f}", "after": after} if wait else None
        return self.get(f"/v1/transactions/{quote(tx_id, safe='')}", query, waits=wait)

    def lanes(self) -> list[Shown]:
        lanes: list[Shown] = self.get("/v1/lanes")["lanes"]
        return lanes

    def send(self, body: Mapping[str, object], idempotency_key: str | None) -> Shown:
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        try:
            return self._call("POST", "/v1/transactions", body=body, headers=headers)
        except _Interrupted as error:
            advice = (
                "repeat the command, its idempotency key makes that safe"
                if idempotency_key
                else "look with `nonchalant tx list` before you repeat it, and give an --idempotency-key to be safe"
            )
            raise ServiceUnreachable(f"{error}; it may have accepted the transaction: {advice}") from None

    def follow(self, tx: Shown, seconds: float | None, tell: Tell) -> Shown:
        """The transaction once it has ended or is held, or as it was after so many seconds.

        `tell` gets each change, and now and then what has not changed, to be explained. A service that is away is waited
        for: what it accepted goes on when it is back.
        """
        clock = time.monotonic  # noqa: TID251 - a person waits here; nothing else is decided by it
        deadline = None if seconds is None else clock() + seconds
        away = False
        while tx["state"] in LIVE_STATES and not tx["held"]:
            left = LONG_POLL if deadline is None else min(LONG_POLL, deadline - clock())
            if left <= 0:
                break
            try:
                now = self.transaction(tx["id"], wait=left, after=tx["version"])
            except ServiceUnreachable as error:
                if not away:
                    from nonchalant.cli.terminal import say

                    say(f"{error}; waiting for it", style="yellow")
                away = True
                time.sleep(RETRY_SECONDS)  # noqa: TID251 - a person waits here
                continue
            away = False
            tell(now, explain=now["version"] == tx["version"])
            tx = now
        return tx

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        waits: float = 0.0,
    ) -> Shown:
        connection = self._connection(self._host, self._port, timeout=waits + ANSWER_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.connect()
            except OSError as error:
                raise ServiceUnreachable(
                    f"cannot reach the service at {self.url} ({error.strerror or error}); "
                    "start it with `nonchalant dev`, or set NONCHALANT_URL"
                ) from None
            try:
                sent = None if body is None else json.dumps(body).encode()
                kind = {} if sent is None else {"Content-Type": "application/json"}
                connection.request(method, self._path + path, sent, {**kind, **self._credentials, **(headers or {})})
                answer = connection.getresponse()
                raw = answer.read()
            except (TimeoutError, OSError, http.client.HTTPException) as error:
                raise _Interrupted(
                    f"the service at {self.url} did not answer ({str(error) or type(error).__name__})"
                ) from None
        return self._read(answer.status, raw)

    def _read(self, status: int, raw: bytes) -> Shown:
        try:
            value = json.loads(raw)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ServiceUnreachable(f"what answers at {self.url} is not Nonchalant (HTTP status {status})")
        if status < 400:
            return value
        problem, detail = str(value.get("code", status)), str(value.get("detail", "the service gave no reason"))
        if status == 503 and problem != "no_answer_yet":
            raise ServiceUnreachable(f"the service at {self.url} is not ready: {detail}")
        if status == 401:
            detail = f"{detail.removesuffix('.')}; it is taken from NONCHALANT_KEY, or from a file with --key-file"
        raise Refusal(status, problem, detail, value.get("data"))


class _Interrupted(ServiceUnreachable):
    """The call left, and no answer came."""
