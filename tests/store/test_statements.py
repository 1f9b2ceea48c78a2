"""Statements for many rows: what is the same in all of them is given once."""

from __future__ import annotations

from nonchalant.store.statements import MOST_FORMS, WORTH_SHORTENING, Statements

SLOT = {
    "nonce": 0,
    "kind": "transaction",
    "tx_id": "a",
    "wanted": "payload",
    "payload_version": 1,
    "holder": None,
    "deadline": None,
    "receipt": None,
}
LANE = {"chain_id": 1, "address": "0x00"}


def slots(count: int, *different: str) -> list[dict[str, object]]:
    return [
        SLOT | {"nonce": number, "tx_id": f"t{number}"} | dict.fromkeys(different, number) for number in range(count)
    ]


def test_one_value_stands_for_a_column_that_has_no_other():
    statement, values = Statements("s").for_each("put_slot", slots(WORTH_SHORTENING), LANE)
    assert values.count("transaction") == 1
    assert list(range(WORTH_SHORTENING)) in values
    assert "array_fill(" in statement.sql


def test_a_few_rows_are_not_worth_another_statement():
    known = Statements("s")
    statement, values = known.for_each("put_slot", slots(WORTH_SHORTENING - 1), LANE)
    assert statement.sql == known["put_slot"].sql
    assert ["transaction"] * (WORTH_SHORTENING - 1) in values


def test_a_text_that_the_server_cannot_keep_is_changed_wherever_it_stands():
    different = [slot | {"holder": "a\0b"} for slot in slots(WORTH_SHORTENING)]
    _, values = Statements("s").for_each("put_slot", different, LANE)
    assert "a\ufffdb" in values
    _, values = Statements("s").for_each("put_slot", different[:2], LANE)
    assert ["a\ufffdb"] * 2 in values


def test_a_statement_has_so_many_forms_and_no_more():
    known, columns = Statements("s"), [column for column in SLOT if column not in ("nonce", "tx_id")]
    given = [columns[:size] for size in range(1, len(columns))] + [columns[size:] for size in range(1, len(columns))]
    assert len(given) > MOST_FORMS
    forms = set()
    for different in given:
        rows = slots(WORTH_SHORTENING, *different)
        statement, values = known.for_each("put_slot", rows, LANE)
        forms.add(statement.sql)
        for column in different:  # as a list, whichever form it is
            assert [row[column] for row in rows] in values
    assert len(forms) <= MOST_FORMS + 1
