"""The HTTP side: one body in, one answer out. Whatever goes wrong within a call is that call's answer, with status 200."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final

import structlog

from nonchalant.config import ChainSettings
from nonchalant.errors import BadRequest, NonchalantError, NotFound
from nonchalant.scalars import LARGEST_NUMBER, parse_idempotency_key, parse_number
from nonchalant.service.front import Front
from nonchalant.service.http import Answer, Call
from nonchalant.service.rpc import envelope, failures
from nonchalant.service.rpc.asked import Asked, Turn, Visit
from nonchalant.service.rpc.envelope import Failure, Malformed, Question, Result
from nonchalant.service.rpc.failures import NoSuchMethod, RpcError
from nonchalant.service.rpc.methods import METHODS, answer

log = structlog.get_logger()

_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,100}", re.ASCII)

# What a call is answered that nobody wants answered.
_SILENCE: Final = Answer(b"", 204)


async def post_rpc(front: Front, call: Call) -> Answer:
    call.only(())
    visit = Visit(front, call, _chain(front, call))
    body = await call.json_body()
    try:
        questions, is_batch = envelope.read(body)
        front.gate.charge(call.caller, len(questions) - 1)
        asked = _ordered(visit, questions, is_batch=is_batch)
    except (RpcError, BadRequest) as problem:
        return Answer(Failure(envelope.NULL, failures.described(problem)))
    try:
        answers = await asyncio.gather(*(_answered(one) for one in asked))
    finally:
        visit.end()
    wanted = [one for one in answers if one is not None]
    if not wanted:
        return _SILENCE
    return Answer(wanted if is_batch else wanted[0])


def _chain(front: Front, call: Call) -> ChainSettings:
    """`NotFound` also for a chain on which the caller has no account: its endpoints are for those who have."""
    try:
        chain = front.node.settings.chain(parse_number(call.parts[0], "chain_id", LARGEST_NUMBER))
    except BadRequest:
        chain = None
    is_for_him = chain is not None and any(
        lane.chain_id == chain.id and call.caller.may_use(lane) for lane in front.node.known_lanes
    )
    if chain is None or not is_for_him:
        raise NotFound(f"there is no chain {call.parts[0][:80]!r} for this key; GET /v1/lanes lists the accounts")
    return chain


def _ordered(visit: Visit, questions: Sequence[Question | Malformed], *, is_batch: bool) -> list[Asked | Malformed]:
    """The calls, each with its turn. Under one Idempotency-Key each call of a batch has its own, by its place."""
    key = visit.call.header("Idempotency-Key")
    key = None if key is None else parse_idempotency_key(key)
    turn: Turn | None = None
    asked: list[Asked | Malformed] = []
    for place, question in enumerate(questions):
        if isinstance(question, Malformed):
            asked.append(question)
            continue
        own = key if key is None or not is_batch else parse_idempotency_key(f"{key}/{place}")
        method = METHODS.get(question.method)
        if method is not None and method.writes:
            turn = Turn(turn)
            asked.append(Asked(visit, question, own, turn))
        else:
            asked.append(Asked(visit, question, own))
    return asked


async def _answered(asked: Asked | Malformed) -> Result | Failure | None:
    """None: it was a notification."""
    if isinstance(asked, Malformed):
        return Failure(asked.id, failures.described(asked.problem))
    question = asked.question
    reply: Result | Failure
    shown = question.id or envelope.NULL
    try:
        if not _NAME.fullmatch(question.method):
            raise NoSuchMethod(repr(question.method[:40]), "that is no name of a method")
        reply = Result(shown, await answer(asked))
    except NonchalantError as error:
        if failures.is_our_own(error):
            log.exception("call.failed", method=question.method, path=asked.visit.call.scope["path"])
        reply = Failure(shown, _internal(asked) if failures.is_our_own(error) else failures.described(error))
    except Exception:  # a bug of ours must answer too, and its neighbours in the batch with it
        log.exception("call.failed", method=question.method, path=asked.visit.call.scope["path"])
        reply = Failure(shown, _internal(asked))
    finally:
        asked.turn.is_over()
    return None if question.id is None else reply


def _internal(asked: Asked) -> dict[str, object]:
    method = METHODS.get(asked.question.method)
    return failures.internal(may_be_repeated=method is None or not method.writes)
