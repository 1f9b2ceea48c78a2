"""Reading an answer: whatever a node sent becomes plain words, and the first rule that finds itself in them decides."""

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice

from nonchalant.rejections.kinds import Rejection
from nonchalant.rejections.rules import CODES, RULES

# An answer is one or two sentences. Of more, the ends are read: a raw transaction quoted in between says nothing.
_END = 3000
_LONGEST = 12_000
_PARTS = 200
# Longer than what a space in a phrase may span, so that no phrase joins two voices.
_PAUSE = "\n\n\n\n"
# Solidity's Error(string) and Panic(uint256): proof that a contract spoke, whatever it said.
_REVERT_DATA = re.compile(r"0x(?:08c379a0|4e487b71)", re.IGNORECASE)
_ESCAPE = re.compile(r"\\{1,8}u([0-9a-fA-F]{4})")
# Long numbers and the addresses of endpoints say nothing, and would push words apart.
_NOT_WORDS = re.compile(r"\b(?:0x[0-9a-f]{8,}|\d{20,}|https?://[^\s\"')]+)", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Erigon says a coarse status and then the reason; the status of one reason is the reason of another.
_STATUS = re.compile(
    r"(?<![a-z] )\b(?:success|already_exists|fee_too_low|stale|invalid|internal_error): ?(?=\w)", re.IGNORECASE
)
_APOSTROPHE = re.compile(r"(?<=[a-z])['’](?=[a-z])")
_NOISE = re.compile(r"(?:\\[nrt]|[\\\"'`_\s])+")
_TX = re.compile(r"\b(?:transactions?|txns?|txs)\b")
_CODE = re.compile(r"\bcode\W{1,4}?(-?\d{1,6})\b")


def classify(message: str, code: int | None = None, data: object = None) -> Rejection:
    """Say what a node's error means; INTERNAL_UNKNOWN, which counts as possibly sent, if it is not understood.

    The words decide, in `message` and in whatever `data` holds; a code only speaks where they say nothing. Never
    raises, whatever it is given.
    """
    text = _PAUSE.join(map(normalised, _voices(message, data)))
    for rule in RULES:
        if rule.pattern.search(text):
            return rule.rejection
    codes = (code, *map(int, _CODE.findall(text)))
    return next((CODES[c] for c in codes if isinstance(c, int) and c in CODES), Rejection.INTERNAL_UNKNOWN)


def _voices(*said: object) -> Iterator[str]:
    """The texts inside, outermost first, until enough was heard. Keys are not words: `revertReason: null` is silence."""
    waiting = deque(said)
    room = _LONGEST
    for _ in range(_PARTS):
        if not waiting or room <= 0:
            return
        match waiting.popleft():
            case str(text) if len(text) > 2 * _END:
                waiting.extendleft((text[-_END:], text[:_END]))
            case str(text):
                room -= len(text)
                yield text
            case bytes(raw):
                waiting.appendleft(raw[: 2 * _END].decode("utf-8", "replace"))
            case dict(fields):
                waiting.extend(islice(fields.values(), _PARTS))
            case list(parts) | tuple(parts):
                waiting.extend(parts[:_PARTS])
            case _:
                pass  # a number, or nothing


def normalised(voice: str) -> str:
    """Lower case, words apart, no quotes, no long hexadecimal, and one word for transaction."""
    voice = _REVERT_DATA.sub(" revert data 0x", _ESCAPE.sub(lambda unit: chr(int(unit[1], 16)), voice))
    voice = _CAMEL.sub(" ", _STATUS.sub("", _NOT_WORDS.sub(" ", voice))).lower()
    return _TX.sub("tx", _NOISE.sub(" ", _APOSTROPHE.sub("", voice)))
