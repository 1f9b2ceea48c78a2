"""An operator at the command line: transactions and lanes, against `nonchalant dev`."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator

import pytest

from nonchalant.devchain import RECIPIENT
from tests.service.test_command_line import FIRST, PROGRAM, Dev, dev, surroundings

SECOND = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
THIRD = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with dev(tmp_path_factory.mktemp("dev")) as running:
        yield running


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A node on whose chain nothing is mined."""
    with dev(tmp_path_factory.mktemp("still")) as running:
        running.stop_mining()
        yield running


def on_a_terminal(node: Dev, typed: str, *arguments: str) -> tuple[int, str]:
    """The exit code and what is seen, with somebody typing at a terminal."""
    keyboard, terminal = pty.openpty()
    os.write(keyboard, typed.encode())
    done = subprocess.run(
        [PROGRAM, *arguments],
        check=False,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        env={**surroundings(), "NONCHALANT_URL": node.url},
    )
    os.close(keyboard)
    os.close(terminal)
    return done.returncode, done.stdout


def send(node: Dev, *options: str) -> str:
    sent = node.run("send", "--to", RECIPIENT, "--no-wait", *options)
    assert sent.returncode == 0, sent.stderr
    return sent.stdout.strip()


def test_a_lane_is_paused_and_what_waits_there_says_why_can_be_held_replaced_and_released(node: Dev) -> None:
    paused = node.run("lane", "pause", FIRST, "--reason", "key rotation")
    assert (paused.returncode, "paused (key rotation)" in paused.stdout) == (0, True)
    tx_id = send(node, "--value", "5")
    shown = node.run("tx", "show", tx_id).stdout
    assert "Its lane is paused (key rotation)" in shown
    watched = node.run("tx", "watch", tx_id, "--timeout", "0")
    assert watched.returncode == 1
    assert "Its lane is paused" in watched.stdout
    held = node.run("tx", "hold", tx_id, "--reason", "look first")
    assert (held.returncode, "It is held: look first." in held.stdout) == (0, True)
    replaced = node.json("tx", "replace", tx_id, "--to", SECOND, "--value", "7")
    assert (replaced["payload_version"], replaced["to"], replaced["value"], replaced["held"]) == (2, SECOND, "7", True)
    assert node.json("tx", "bump", tx_id, "--speed", "fast")["fees"] == {"speed": "fast"}
    assert node.json("tx", "release", tx_id)["held"] is False
    assert "mode" in node.run("lane", "show", FIRST).stdout
    resumed = node.run("lane", "resume", FIRST)
    assert (resumed.returncode, "open" in resumed.stdout) == (0, True)
    assert node.run("tx", "watch", tx_id).returncode == 0
    shown = node.run("tx", "show", tx_id).stdout
    for expected in ("payload 1, before it was replaced", "tx.replaced", "tx.released", "payload 2"):
        assert expected in shown


def test_a_queued_transaction_is_cancelled_at_once(node: Dev) -> None:
    node.run("lane", "pause", SECOND)
    tx_id = send(node, "--from", SECOND)
    cancelled = node.run("tx", "cancel", tx_id, "--wait")
    assert (cancelled.returncode, "cancelled" in cancelled.stdout) == (0, True)
    again = node.run("tx", "hold", tx_id)
    assert (again.returncode, "(too_late)" in again.stderr) == (1, True)
    node.run("lane", "resume", SECOND)


def test_a_drained_lane_is_waited_for_and_refuses_requests(node: Dev) -> None:
    send(node, "--from", THIRD)
    drained = node.run("lane", "drain", THIRD, "--wait")
    assert (drained.returncode, "draining" in drained.stdout) == (0, True)
    assert node.json("lane", "show", THIRD)["slots"] == {}
    refused = node.run("send", "--to", RECIPIENT, "--from", THIRD)
    assert (refused.returncode, "lane_draining" in refused.stderr) == (1, True)
    node.run("lane", "resume", THIRD)


def test_a_lane_is_watched_as_lines_and_as_json(node: Dev) -> None:
    line = node.run("lane", "watch", SECOND, "--timeout", "0").stdout
    assert "next nonce" in line
    watched = node.run("lane", "watch", SECOND, "--timeout", "0", "--json").stdout.splitlines()
    assert [json.loads(one)["address"] for one in watched] == [SECOND]


def test_a_lane_is_compared_with_its_chain_and_has_no_holes(node: Dev) -> None:
    assert "every nonce below" in node.run("lane", "sync", FIRST).stdout
    assert node.json("lane", "sync", FIRST)["holes"] == []
    assert "no hole" in node.run("lane", "fill", FIRST).stdout
    refused = node.run("lane", "fill", FIRST, "--nonce", "999")
    assert (refused.returncode, "(not_a_hole)" in refused.stderr) == (1, True)


def test_force_is_asked_for_on_a_terminal_and_nowhere_assumed(still: Dev) -> None:
    tx_id = send(still)
    assert still.run("tx", "watch", tx_id, "--timeout", "2").returncode == 1
    refused = still.run("lane", "reset", FIRST)
    assert (refused.returncode, "(attempts_live)" in refused.stderr, tx_id in refused.stdout) == (1, True, True)
    alone = still.run("lane", "reset", FIRST, "--force")
    assert (alone.returncode, "--yes" in alone.stderr) == (2, True)
    code, seen = on_a_terminal(still, "n\n", "lane", "reset", FIRST, "--force")
    assert (code, "Reset it?" in seen, "nothing was done" in seen) == (1, True, True)
    assert still.json("lane", "show", FIRST)["health"]["resets"] == 0
    code, seen = on_a_terminal(still, "y\n", "lane", "reset", FIRST, "--force")
    assert (code, "these keep their nonce" in seen, tx_id in seen) == (0, True, True)
    assert still.json("lane", "show", FIRST)["health"]["resets"] == 1
    assert still.run("lane", "reset", FIRST, "--force", "--yes").returncode == 0


def test_what_is_sent_is_made_dearer_and_cancelled_and_says_so(still: Dev) -> None:
    tx_id = send(still, "--from", SECOND)
    still.run("tx", "watch", tx_id, "--timeout", "2")
    dearer = still.json("tx", "bump", tx_id)
    assert [one["kind"] for one in dearer["attempts"]] == ["original", "bump"]
    refused = still.run("tx", "bump", tx_id, "--max-fee", "1gwei", "--max-priority-fee", "1")
    assert (refused.returncode, "(underpriced)" in refused.stderr) == (1, True)
    cancelling = still.run("tx", "cancel", tx_id)
    assert cancelling.returncode == 0
    assert "It is being cancelled" in cancelling.stdout
    assert "sent cancelling" in still.run("tx", "list", "--from", SECOND).stdout


def test_all_of_a_lane_is_cancelled_only_when_meant(still: Dev) -> None:
    still.run("lane", "pause", THIRD)
    ids = [send(still, "--from", THIRD) for _ in range(2)]
    alone = still.run("lane", "cancel", THIRD)
    assert (alone.returncode, "--yes" in alone.stderr) == (2, True)
    code, seen = on_a_terminal(still, "n\n", "lane", "cancel", THIRD)
    assert (code, "all 2 live transactions" in seen) == (1, True)
    assert still.json("lane", "cancel", THIRD, "--yes") == {"asked": 2}
    assert {still.json("tx", "show", tx_id)["state"] for tx_id in ids} == {"cancelled"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["lane", "pause"], 2, "Missing argument"),
        (["lane", "pause", "0x12"], 2, "no such account"),
        (["lane", "pause", RECIPIENT, "--chain", "31337"], 1, "(not_found)"),
        (["lane", "pause", FIRST, "--reason", "x" * 501], 1, "reason: longer than 500"),
        (["lane", "fill", FIRST, "--nonce", "-1"], 2, "--nonce"),
        (["lane", "stop", FIRST], 2, "No such command"),
    ],
)
def test_a_mistake_is_one_clear_message(node: Dev, arguments: list[str], code: int, said: str) -> None:
    done = node.run(*arguments)
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (code, True, False), done.stderr
