"""Webhooks and the stream over nodes that are killed; the full run is `python -m tests.e2e.deliveries`."""

from pathlib import Path

import pytest

from tests.e2e import deliveries
from tests.lessons import lesson
from tests.postgres import Cluster
from tests.service.receiver import Message


@lesson("webhook-signatures")
@pytest.mark.timeout(600)
async def test_each_event_is_delivered_in_order_over_kills(tmp_path: Path, postgres: Cluster) -> None:
    figures = await deliveries.run(tmp_path, postgres, transactions=150, nodes=3, kills=3)
    assert figures.events >= 150 * 4  # accepted, signed, sent, mined, confirmed
    assert figures.kills == 3


def message(position: int, tx: str = "a") -> Message:
    body = f'{{"type":"tx.sent","data":{{"position":{position},"tx":"{tx}"}}}}'
    return Message(f"msg_{position}", {}, body)


def test_the_check_sees_what_is_missing_and_what_is_out_of_order() -> None:
    expected = {1: "a", 2: "b", 3: "a"}
    fine = [message(2, "b"), message(1), message(1), message(3), message(1)]
    deliveries.check(expected, fine, [1, 2, 3])
    with pytest.raises(AssertionError, match="never delivered"):
        deliveries.check(expected, fine[:3], [1, 2, 3])
    with pytest.raises(AssertionError, match="came after"):
        deliveries.check(expected, [message(3), message(1), message(2, "b")], [1, 2, 3])
    with pytest.raises(AssertionError, match="out of order"):
        deliveries.check(expected, fine, [1, 3, 2])
    with pytest.raises(AssertionError, match="never told"):
        deliveries.check(expected, fine, [1, 3])
