"""The error tree: each exception tells its caller what to do."""

import inspect

import pytest

from nonchalant import errors
from nonchalant.errors import BadRequest, NodeRefused, NonchalantError, QueueFull, TransactionRemoved, WishRefused

TREE = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, NonchalantError) and found.__module__ == errors.__name__
]


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
def test_every_error_says_in_its_docstring_what_to_do(error: type[NonchalantError]) -> None:
    assert error.__doc__ is not None
    assert error.__doc__ != (error.__base__ or object).__doc__
    assert error.__doc__.splitlines()[0].endswith(".")


def test_without_a_detail_the_docstring_is_the_message() -> None:
    assert str(QueueFull()) == "The lane's queue is full; try again when it has drained."
    assert QueueFull().detail == ""


def test_a_subclass_without_words_is_known_by_its_name() -> None:
    class Wordless(NonchalantError):
        pass

    assert Wordless.__doc__ is None
    assert str(Wordless()) == "Wordless"


def test_a_detail_replaces_the_docstring() -> None:
    assert str(QueueFull("100 wait")) == "100 wait"
    assert QueueFull("100 wait").detail == "100 wait"


def test_a_bad_request_names_the_field_to_correct() -> None:
    error = BadRequest("is not an address", field="to")
    assert str(error) == "to: is not an address"
    assert error.field == "to"


def test_a_bad_request_may_be_about_no_field() -> None:
    assert str(BadRequest("is not JSON")) == "is not JSON"
    assert BadRequest("is not JSON").field is None
    assert str(BadRequest()) == "The request cannot be understood; correct the field that is named."


def test_a_node_s_refusal_keeps_its_words_code_and_data() -> None:
    refusal = NodeRefused("nonce too low", -32000, {"a": 1})
    assert str(refusal) == refusal.message == "nonce too low"
    assert (refusal.node_code, refusal.data) == (-32000, {"a": 1})


def test_codes_that_callers_see_are_stable() -> None:
    assert {error.__name__: error.code for error in TREE if error.code != "internal"} == {
        "BadRequest": "bad_request",
        "BadSettings": "bad_settings",
        "BatchTooLong": "batch_too_long",
        "CommitUnknown": "store_unavailable",
        "FeeAboveCap": "fee_above_cap",
        "Forbidden": "forbidden",
        "KeyReused": "idempotency_key_reused",
        "LaneDraining": "lane_draining",
        "NonceTaken": "nonce_taken",
        "NotFound": "not_found",
        "QueueFull": "queue_full",
        "ShuttingDown": "shutting_down",
        "SignerFailed": "signer_failed",
        "StoreUnavailable": "store_unavailable",
        "MayHaveRun": "may_have_run",
        "TooDeep": "too_deep",
        "TooLate": "too_late",
        "TooManyReplacements": "too_many_replacements",
        "TooManyWebhooks": "too_many_webhooks",
        "TooManyWishes": "too_many_wishes",
        "TransactionRemoved": "transaction_removed",
        "Unencodable": "unencodable",
        "UnknownAccount": "unknown_account",
        "UnknownChain": "unknown_chain",
        "Unreachable": "chain_unreachable",
        "Unreadable": "store_unavailable",
        "WishPending": "no_answer_yet",
        "WishRefused": "refused",
    }


def test_what_is_kept_no_more_is_known_by_its_id() -> None:
    assert TransactionRemoved("long ago", "tx").tx_id == "tx"
    assert TransactionRemoved().tx_id is None


def test_a_refused_wish_has_the_code_of_the_reason() -> None:
    refusal = WishRefused("it is mined", "already_executed")
    assert (str(refusal), refusal.why, refusal.code) == ("it is mined", "already_executed", "already_executed")
