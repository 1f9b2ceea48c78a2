"""Known failures of systems like ours, and which of our tests show that we do not have them: `tests/LESSONS.md`.

    python -m tests.lessons

A test says what it answers by `@lesson("its-id")`. A lesson is either answered by a test or open, with the reason; a
lesson that is both, or neither, fails `tests/docs`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER / "LESSONS.md"


class Section(StrEnum):
    TWICE = "Executing twice"
    STUCK = "Getting stuck"
    STORIES = "Telling stories"
    OVERWRITING = "Writing over each other"
    INTERFACES = "Interfaces"
    NODES = "Node answers"


@dataclass(frozen=True, slots=True)
class Lesson:
    """What goes wrong elsewhere, and what must be so here. `open`: why no test can show it yet."""

    id: str
    section: Section
    text: str
    open: str | None = None


def _lessons(section: Section, *rows: tuple[str, str] | tuple[str, str, str]) -> list[Lesson]:
    return [Lesson(id, section, text, *why) for id, text, *why in rows]


NO_BLOBS = "Blob transactions are not accepted: a request cannot name a blob."

TABLE: Sequence[Lesson] = [
    *_lessons(
        Section.TWICE,
        (
            "missing-receipt",
            "No receipt is no evidence. The call may have failed, or the node may lag; whoever takes that for a replacement and signs the payload for a new nonce executes it a second time.",
        ),
        (
            "send-timeout",
            "A send without an answer may have arrived. Its hash and its nonce stay taken: forgetting the one and giving out the other lets two transactions live.",
        ),
        (
            "older-attempt-mined",
            "After a bump the older bytes can still win. All attempts of a nonce are watched, not only the newest.",
        ),
        (
            "nonce-too-low-is-ours",
            'A node that says "nonce too low" has most likely mined our own earlier attempt: the answer is to look, not to take another nonce, to wait for ever or to tell the client that it failed.',
        ),
        (
            "died-after-resend",
            "A process can die between handing bytes over and writing down that it did. The next one must know every hash that may be out there.",
        ),
        (
            "two-preparations",
            "Recovery starts a transaction anew while its first, slow preparation still runs: two nonces, both sent.",
        ),
        (
            "idempotency-key-again",
            "A request repeated under its idempotency key never enters the queue again, not even when the first one has long ended.",
        ),
        (
            "cancel-recorded-first",
            "A cancel in the middle of the line that is broadcast before it is stored is forgotten by a crash; then the payload that somebody cancelled is sent after all.",
        ),
        (
            "stellar-bad-sequence",
            "On Stellar, a re-send refused for its sequence number may mean that our own envelope is in the ledger: look for its hash before another sequence number is taken.",
            "There is no Stellar adapter yet.",
        ),
        (
            "reset-while-live",
            "Setting a nonce back by hand while bytes are in mempools gives out numbers that may still be used.",
        ),
        (
            "reservation-reused",
            "A reserved nonce whose time ran out is not free: what became of its holder's broadcast is unknown.",
        ),
    ),
    *_lessons(
        Section.STUCK,
        (
            "nonce-before-store",
            "A nonce taken first and lost when signing or storing then fails leaves a hole, and everything behind it waits for good.",
        ),
        ("gap-without-traffic", "A hole that only the next request would close stays open when none comes."),
        (
            "price-cap",
            "At the price cap no dearer attempt is made, the pool drops the old one, and nobody sends it again: the account stands still. At the cap, go on sending.",
        ),
        (
            "replacement-step",
            "A replacement must pay a tenth more than what the node holds, in every fee field, rounded up; our own old figure, or a fresh one that fell, is not enough.",
        ),
        ("blob-replacement-step", "To replace a blob transaction every fee field must double.", NO_BLOBS),
        (
            "lost-wake-up",
            "A wake-up can be lost: dropped as a double of one that is about to end, its record gone, its process killed after the insert. Something must look for work that nobody was woken for.",
        ),
        (
            "global-window",
            "A limit on what is in flight that all accounts share is used up by one account that is stuck.",
        ),
        ("slow-neighbour", "A chain or an endpoint that is slow or dead must slow no other."),
        ("poisonous-row", "One row that cannot be read, or lacks something, stops its whole account for ever."),
        (
            "head-of-line",
            "What can never be sent (it always reverts, it costs more than there is) must not stand before what can.",
        ),
        (
            "frozen-lease",
            "A lock held for ten minutes and never renewed freezes an account for that long after each crash.",
        ),
        ("polite-stop", "A process that does not heed the signal to stop makes each deployment a crash."),
        (
            "requeued-place",
            "What goes back to the queue keeps its place. Counted as new, it waits behind everything that came since.",
        ),
        (
            "mixed-pool-types",
            "Nodes keep blob and ordinary transactions of an account apart; mixing them locks it up.",
            NO_BLOBS,
        ),
        (
            "delegated-account",
            "An account with delegated code may have only one transaction pending at many nodes.",
        ),
        (
            "first-nonce",
            "Where counting starts: the pending count takes holes over, and the highest number in our own books takes no notice of what pools dropped.",
        ),
        (
            "count-comes-down",
            "The higher of our number and the network's, never lowered again, leaves a hole for ever.",
        ),
        (
            "dependent-estimates",
            "An approval and the transfer that needs it, both estimated on the latest block: the second reverts and is given up, although it would have worked in its turn.",
        ),
        (
            "top-up-twice",
            "Funding that does not count what is already on its way pays twice; a lock around it that an error leaves behind ends all funding.",
            "Accounts are not topped up by this software yet.",
        ),
    ),
    *_lessons(
        Section.STORIES,
        (
            "one-receipt",
            "A first receipt is called an outcome, without depth, without asking whether its block is still on the chain.",
        ),
        (
            "reverted-is-reverted",
            "What reverted is called confirmed, or is called failed before it is final.",
        ),
        ("receipt-after-reorg", "A receipt outlives the block that a reorg removed, and nobody sends the bytes again."),
        (
            "lower-count",
            "A count lower than the last one comes from a node that lags: figures are taken only from an endpoint that has the block they belong to.",
        ),
        (
            "consumed-by-ourselves",
            "A nonce is declared used by somebody else although an earlier attempt of ours used it, or although the calls that would tell have failed.",
        ),
        ("cancel-resends", "A cancelled transaction whose original is broadcast again."),
        (
            "cancel-all-cancels",
            "Cancelling everything reports success and cancels nothing.",
        ),
        (
            "replace-for-real",
            "A replacement is acknowledged that changed a copy in memory and nothing else.",
        ),
        (
            "policy-on-replacement",
            "The rules that the first payload passed are not put to the one that replaces it.",
        ),
        ("bounded-history", "Each retry adds a row, until reading and writing one transaction slows everything."),
    ),
    *_lessons(
        Section.OVERWRITING,
        (
            "no-fencing",
            "A lock that runs out, or is taken away, without a token that the writes must show: the old holder goes on writing.",
        ),
        (
            "last-writer",
            "A row is written whole without looking whether it is still what was read: the last writer wins.",
        ),
        (
            "shared-connection",
            "Optimistic locking by the connection protects nothing when all share one connection.",
        ),
        (
            "address-spelling",
            "A key that is unique only until somebody writes the address in other letters: addresses are brought into one form once, where they come in.",
        ),
        ("batch-neighbours", "One of a hundred requests that share a batch fails, and takes the others with it."),
        ("in-memory-nonce", "The next nonce is in memory, and there are two processes."),
        ("mutex-over-network", "A lock that everybody needs is held while a node is asked."),
    ),
    *_lessons(
        Section.INTERFACES,
        (
            "receipt-by-first-hash",
            "After a bump, ordinary clients wait in vain for the hash that they were given, unless the receipt is served under it.",
        ),
        (
            "client-habits",
            "Clients differ: one asks for its transaction until it is there, one names nonces and fees itself, one sends several at once that arrive out of order, one asks ten times a second.",
        ),
        (
            "webhook-signatures",
            "Webhooks that can be replayed because no time is signed, that send their secret along, that lose events with the process, that arrive in any order.",
        ),
        ("webhook-targets", "A webhook may be pointed at the machine's own network."),
        (
            "tenants-apart",
            "A request names another tenant's account, or reads a transaction through an account that it does not belong to: who owns it is checked in every call.",
        ),
        ("secrets-printed", "Secrets stand in logs, and in the URL that an error quotes."),
    ),
    *_lessons(
        Section.NODES,
        (
            "codes-collide",
            "One error code means different things at different nodes: words and code decide together, the most specific words first.",
        ),
        ("revert-text", "A contract chooses its revert reason, and can choose the words of another error."),
        ("try-later", "Too many requests and server errors say nothing about the transaction: try again."),
        (
            "errors-that-accept",
            "Some errors mean that the node has it: known already, or tired of waiting for a receipt.",
        ),
        ("swallowed-gap", "Some gateways say yes to a nonce after a hole and keep nothing."),
        ("account-limit", "Nodes guarantee an account only so many transactions, and refuse or drop the others."),
        ("gap-refused-late", "Some hold a nonce after a hole for a second and then refuse it."),
    ),
]

LESSONS: Mapping[str, Lesson] = {lesson.id: lesson for lesson in TABLE}


def lesson(id: str) -> pytest.MarkDecorator:
    """The test shows that ours does not fail in this way."""
    if id not in LESSONS:
        raise ValueError(f"there is no lesson {id!r} in tests/lessons.py")
    return pytest.mark.lesson(id)


@dataclass(frozen=True, slots=True)
class Answer:
    """A test that carries a lesson's marker."""

    lesson: str
    file: Path
    test: str


def answers(folder: Path = FOLDER) -> Iterator[Answer]:
    """Every marker in the suite, read from the source: collecting it would import everything."""
    for file in sorted(folder.rglob("*.py")):
        if "lesson" in (text := file.read_text()):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from (Answer(id, file.relative_to(folder), node.name) for id in _ids(node))


def _ids(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="lesson"), args=[ast.Constant(value=str(id))]):
                yield id
            case ast.Call(func=ast.Name(id="lesson")):
                raise ValueError(f"{function.name}: a lesson is named by its id as it stands, so that it can be found")


def page() -> str:
    """What `tests/LESSONS.md` must be."""
    found: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers():
        found[answer.lesson].append(answer)
    answered = sum(1 for one in TABLE if found[one.id])
    parts = [
        "# Lessons",
        "What systems of this kind get wrong, and the tests that show that this one does not.",
        "`make docs` writes this page from the markers in the suite (`tests/lessons.py`).",
        f"{answered} of {len(TABLE)} lessons are answered; the others are open, each with its reason.",
    ]
    for section in Section:
        parts.append(f"## {section}")
        parts += [_entry(one, found[one.id]) for one in TABLE if one.section is section]
    return "\n\n".join(parts) + "\n"


def _entry(lesson: Lesson, tests: Sequence[Answer]) -> str:
    lines = [f"### {lesson.id}", "", lesson.text, ""]
    if lesson.open is not None:
        lines.append(f"*Open.* {lesson.open}")
    lines += [f"- [`{answer.test}`]({answer.file.as_posix()})" for answer in tests]
    return "\n".join(lines).strip()


if __name__ == "__main__":
    PAGE.write_text(page())
