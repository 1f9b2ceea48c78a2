"""The command line against `nonchalant dev`: one process tree, a real chain, real exit codes."""

import contextlib
import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from nonchalant.chain.evm.keccak import keccak
from nonchalant.cli.client import Client
from nonchalant.devchain import RECIPIENT
from nonchalant.store import migrations
from tests import anvil
from tests.ports import free_port

PROGRAM = str(Path(sys.executable).parent / "nonchalant")
FIRST = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"


@dataclass
class Dev:
    """A running `nonchalant dev`."""

    process: subprocess.Popen[bytes]
    data: Path
    port: int
    chain_port: int
    greeting: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run(*arguments, NONCHALANT_URL=self.url)

    def json(self, *arguments: str) -> dict:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(90)

    def stop_mining(self) -> None:
        """Until the next start: what is sent stays where it is."""
        question = {"jsonrpc": "2.0", "id": 1, "method": "evm_setIntervalMining", "params": [0]}
        connection = http.client.HTTPConnection("127.0.0.1", self.chain_port, timeout=10)
        connection.request("POST", "/", json.dumps(question), {"Content-Type": "application/json"})
        assert "error" not in json.loads(connection.getresponse().read())
        connection.close()

    @property
    def chain_process(self) -> int:
        return int((self.data / "lock").read_text().split()[1])


def run(*arguments: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**surroundings(), **environ},
    )


def surroundings() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NONCHALANT_")}
    return {**kept, "NONCHALANT_ANVIL": str(anvil.binary()), "COLUMNS": "200"}


@contextlib.contextmanager
def dev(data: Path, *options: str, port: int | None = None, chain_port: int | None = None) -> Iterator[Dev]:
    port, chain_port = port or free_port(), chain_port or free_port()
    command = [PROGRAM, "dev", "--port", str(port), "--chain-port", str(chain_port), "--data", str(data)]
    data.mkdir(exist_ok=True)
    said = data / "said"
    with said.open("w") as output:
        process = subprocess.Popen(
            [*command, "--block-time", "0.2", *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=surroundings(),
            # Whoever runs the suite in the background of a shell ignores Ctrl-C, and so would all that it starts.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
        )
    try:
        while "Ctrl-C" not in said.read_text():
            assert process.poll() is None, f"dev ended: {said.read_text()}"
            time.sleep(0.05)
        yield Dev(process, data, port, chain_port, said.read_text())
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(90)
        print(said.read_text())  # shown with a failure


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with dev(tmp_path_factory.mktemp("dev")) as running:
        yield running


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A zombie that nobody reaps in a container is dead all the same.
    with contextlib.suppress(FileNotFoundError):
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    return True


def until_gone(process: int) -> None:
    for _ in range(1200):
        if not is_alive(process):
            return
        time.sleep(0.05)
    pytest.fail(f"process {process} is still there")


# --- sending and looking ---


def test_the_printed_command_sends_and_shows_it_confirmed(node: Dev) -> None:
    printed = next(line for line in node.greeting.splitlines() if " send " in line).split()
    done = run(*printed[1:])
    assert done.returncode == 0, done.stderr
    assert "queued" in done.stdout
    assert done.stdout.splitlines()[-1].split()[1] == "confirmed"
    assert FIRST in node.greeting


def test_json_gives_the_whole_transaction(node: Dev) -> None:
    sent = node.json(
        "send", "--to", RECIPIENT, "--value", "5gwei", "--from", FIRST, "--chain", "31337", "--speed", "fast",
        "--priority", "9", "--gas", "30000", "--metadata", '{"invoice": 7}', "--idempotency-key", "json-1",
    )  # fmt: skip
    assert (sent["state"], sent["value"], sent["metadata"]) == ("confirmed", "5000000000", {"invoice": 7})
    assert sent["receipt"]["succeeded"] is True
    assert (sent["fees"], sent["priority"], sent["gas"]) == ({"speed": "fast"}, 9, 30000)
    again = node.json(
        "send", "--to", RECIPIENT, "--value", "5gwei", "--from", FIRST, "--chain", "31337", "--speed", "fast",
        "--priority", "9", "--gas", "30000", "--metadata", '{"invoice": 7}', "--idempotency-key", "json-1",
    )  # fmt: skip
    assert again == sent
    assert node.json("tx", "show", sent["id"]) == sent
    assert node.json("tx", "list", "--hash", sent["hash"])["transactions"] == [sent]


def test_a_revert_is_called_so_and_fails_the_command(node: Dev) -> None:
    # Creation code that is the invalid instruction; a gas limit given, so that nothing is estimated first.
    done = node.run("send", "--data", "0xfe", "--gas", "100000")
    assert done.returncode == 1
    assert "reverted" in done.stdout
    assert "opcode" in done.stdout.lower(), "the node's words for why"


def test_a_simulation_finds_the_revert_first_and_an_abi_puts_it_in_words(node: Dev, tmp_path: Path) -> None:
    errors = [{"type": "error", "name": "Closed", "inputs": [{"name": "until", "type": "uint64"}]}]
    abi = tmp_path / "Shop.json"
    abi.write_text(json.dumps({"abi": errors, "bytecode": "0x"}))
    # Creation code that reverts with Closed(66).
    selector = keccak(b"Closed(uint64)")[:4].hex()
    code = f"0x63{selector}60e01b5f52604260045260245ffd"
    done = node.run("send", "--data", code, "--gas", "100000", "--simulate", "--abi", str(abi), "--json")
    assert done.returncode == 1
    ended = json.loads(done.stdout)
    assert (ended["state"], ended["nonce"]) == ("failed", None)
    assert "Closed(until: 66)" in ended["failure"]
    done = node.run("send", "--data", code, "--gas", "100000", "--abi", str(abi))
    assert done.returncode == 1
    assert "Closed(until: 66)" in done.stdout


def test_a_transaction_can_be_watched_and_shown(node: Dev) -> None:
    sent = node.run("send", "--to", RECIPIENT, "--no-wait")
    assert sent.returncode == 0
    tx_id = sent.stdout.strip()
    watched = node.run("tx", "watch", tx_id)
    assert watched.returncode == 0
    assert "confirmed" in watched.stdout
    shown = node.run("tx", "show", tx_id).stdout
    for expected in (tx_id, "confirmed", FIRST, RECIPIENT, "original", "tx.accepted", "tx.confirmed"):
        assert expected in shown
    listed = node.run("tx", "list", "--state", "confirmed", "--limit", "500").stdout
    assert tx_id in listed


def test_lanes_are_listed_and_shown(node: Dev) -> None:
    assert len(node.json("lane", "list")["lanes"]) == 5
    table = node.run("lane", "list").stdout
    assert FIRST in table
    assert "ether" in table
    shown = node.run("lane", "show", FIRST.lower()).stdout
    assert "next nonce" in shown
    assert node.json("lane", "show", FIRST)["address"] == FIRST


def test_waiting_ends_and_the_transaction_goes_on(node: Dev) -> None:
    done = node.run("send", "--to", RECIPIENT, "--timeout", "0")
    assert done.returncode == 1
    assert "goes on without you" in done.stderr


def test_nobody_waits_for_a_held_transaction() -> None:
    held = {"id": "tx", "state": "queued", "held": True, "version": 1}
    assert Client("http://127.0.0.1:1").follow(held, None, lambda _now, *, explain: None) == held


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["send", "--to", "0x12"], 1, "to: an address has 40 hex digits"),
        (["send", "--to", RECIPIENT, "--value", "5dollars"], 2, "unknown unit"),
        (["send", "--to", RECIPIENT, "--value", str(2**256)], 2, "256 bits"),
        (["send", "--to", RECIPIENT, "--data", "hello"], 1, "data: expected 0x"),
        (["send", "--to", RECIPIENT, "--chain", "1"], 2, "no such account"),
        (["send", "--to", RECIPIENT, "--from", RECIPIENT, "--chain", "31337"], 1, "add it to [[accounts]]"),
        (["send", "--to", RECIPIENT, "--metadata", "[]"], 2, "JSON object"),
        (["send", "--to", RECIPIENT, "--abi", "/nonexistent.json"], 2, "cannot read /nonexistent.json"),
        (["send", "--to", RECIPIENT, "--abi", __file__], 2, "cannot read"),
        (["send", "--to", RECIPIENT, "--colour", "red"], 2, "No such option"),
        (["send"], 1, "to: missing"),
        (["tx", "show", "nope"], 1, "there is no transaction 'nope'"),
        (["tx", "undo", "nope"], 2, "No such command"),
        (["tx", "cancel", "nope"], 1, "there is no transaction 'nope' (not_found)"),
        (["tx", "replace", "nope", "--to", "0x12"], 1, "there is no transaction 'nope'"),
        (["tx", "bump", "nope", "--max-fee", "5dollars"], 2, "unknown unit"),
        (["tx", "hold"], 2, "Missing argument"),
        (["send", "--to", RECIPIENT, "--valid-until", "2020-01-01T00:00:00Z"], 1, "valid_until: has passed already"),
        (["send", "--to", RECIPIENT, "--valid-until", "tomorrow"], 1, "valid_until: expected a time"),
        (["send", "--to", RECIPIENT, "--confirmations", "0"], 2, "--confirmations"),
        (["send", "--to", RECIPIENT, "--max-fee", "1gwei"], 1, "fees: expected one of"),
        (["lane", "show", "0x12"], 2, "no such account"),
        (["lane", "show", "0x12", "--chain", "1"], 1, "40 hex digits"),
        (["send", "--to", RECIPIENT, "--url", "ftp://x"], 1, "must look like http"),
        (["serve", "--config", "/nonexistent.toml"], 1, "nonchalant dev"),
        (["config", "check", "--config", "/nonexistent.toml"], 1, "there is no /nonexistent.toml"),
    ],
)
def test_a_mistake_is_one_clear_message_and_no_traceback(node: Dev, arguments: list[str], code: int, said: str) -> None:
    done = node.run(*arguments)
    assert done.returncode == code, done
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_no_service_is_told_with_the_remedy() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    for command in (["tx", "list"], ["lane", "list"], ["send", "--to", RECIPIENT]):
        done = run(*command, "--url", url)
        assert done.returncode == 1
        assert f"cannot reach the service at {url}" in done.stderr
        assert "nonchalant dev" in done.stderr
        assert "NONCHALANT_URL" in done.stderr


def test_another_program_at_the_url_is_told_apart(node: Dev) -> None:
    done = run("tx", "list", "--url", f"http://127.0.0.1:{node.chain_port}")
    assert done.returncode == 1
    assert "is not Nonchalant" in done.stderr


# --- looking after it ---


def test_doctor_finds_all_well_and_tells_what_is_not(node: Dev, tmp_path: Path) -> None:
    done = run("doctor", "--config", str(node.data / "nonchalant.toml"))
    assert done.returncode == 0, done.stdout
    assert "✗" not in done.stdout
    assert "all is well" in done.stdout

    (tmp_path / "key").write_text("11" * 32)
    broken = tmp_path / "nonchalant.toml"
    broken.write_text(f"""
        store = "sqlite:nowhere/nonchalant.db"
        auth = "off"
        [[chains]]
        id = 31337
        endpoints = ["http://127.0.0.1:{node.chain_port}"]
        [[chains]]
        id = 5
        endpoints = ["http://127.0.0.1:{node.chain_port}/", "http://127.0.0.1:1"]
        [[accounts]]
        chains = [31337]
        key = {{ env = "UNFUNDED" }}
        [[accounts]]
        chains = [31337]
        key = {{ env = "MISSING" }}
        [[accounts]]
        chains = [31337]
        key = {{ file = "key" }}
    """)
    done = run("doctor", "--config", str(broken), UNFUNDED="22" * 32)
    assert done.returncode == 1
    for expected in (
        "cannot write in", "it serves chain 31337", "127.0.0.1:1", "send it some funds",
        "MISSING is not set", "chmod 600",
    ):  # fmt: skip
        assert expected in done.stdout, done.stdout
    report = json.loads(run("doctor", "--config", str(broken), "--json", UNFUNDED="22" * 32).stdout)
    assert report["ok"] is False
    assert sum(not finding["ok"] for finding in report["findings"]) == 6
    assert "22" * 32 not in json.dumps(report)


def test_config_check_reads_keys_too(node: Dev, tmp_path: Path) -> None:
    good = str(node.data / "nonchalant.toml")
    assert "the settings are right" in run("config", "check", "--config", good).stdout
    assert len(json.loads(run("config", "check", "--config", good, "--json").stdout)["accounts"]) == 5
    bad = tmp_path / "nonchalant.toml"
    bad.write_text((node.data / "nonchalant.toml").read_text().replace("poll_interval", "pol_interval"))
    done = run("config", "check", cwd=tmp_path)
    assert done.returncode == 1
    assert "chains[0].pol_interval: unknown key; did you mean poll_interval?" in done.stderr


def test_the_store_is_made_and_its_version_shown(node: Dev, tmp_path: Path) -> None:
    (tmp_path / "nonchalant.toml").write_text((node.data / "nonchalant.toml").read_text())
    assert run("db", "status", cwd=tmp_path).returncode == 1
    assert run("db", "migrate", cwd=tmp_path).returncode == 0
    done = run("db", "status", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["current"] is True


def test_help_needs_nothing_heavy() -> None:
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", PROGRAM, "--help"], capture_output=True, text=True, check=True
    ).stderr
    for heavy in (
        "rich",
        "aiohttp",
        "asyncio",
        "coincurve",
        "eth_account",
        "msgspec",
        "sqlite3",
        "structlog",
        "uvicorn",
    ):
        assert f" {heavy}\n" not in loaded, heavy
    assert run("--version").stdout.startswith("nonchalant ")


# --- dev itself ---


def test_dev_goes_on_where_it_stopped_and_fresh_forgets(tmp_path: Path) -> None:
    with dev(tmp_path / "d") as first:
        sent = first.json("send", "--to", RECIPIENT, "--value", "1ether")
        chain = first.chain_process
        assert first.stop(signal.SIGINT) == 0
        until_gone(chain)
    with dev(tmp_path / "d") as second:
        assert "afresh" not in second.greeting
        assert second.json("tx", "show", sent["id"]) == sent
        assert second.json("send", "--to", RECIPIENT)["nonce"] == sent["nonce"] + 1
        assert second.stop() == 0
    with dev(tmp_path / "d", "--fresh") as third:
        assert third.json("tx", "list")["transactions"] == []
        assert third.json("send", "--to", RECIPIENT)["nonce"] == 0


def test_killing_dev_leaves_no_orphan_and_loses_nothing(tmp_path: Path) -> None:
    with dev(tmp_path) as first:
        sent = first.json("send", "--to", RECIPIENT)
        waiting = first.json("send", "--to", RECIPIENT, "--no-wait")
        chain = first.chain_process
        first.stop(signal.SIGKILL)
        # At once, on the same ports: the dying chain is waited for.
        with dev(tmp_path, port=first.port, chain_port=first.chain_port) as second:
            assert not is_alive(chain)
            assert "afresh" not in second.greeting
            assert second.json("tx", "show", sent["id"]) == sent
            watched = second.run("tx", "watch", waiting["id"], "--timeout", "30")
            assert watched.returncode == 0, watched


def test_a_chain_older_than_the_database_starts_both_afresh(tmp_path: Path) -> None:
    with dev(tmp_path) as first:
        first.json("send", "--to", RECIPIENT)
        first.stop()
    saved = (tmp_path / "chain.json").read_bytes()
    with dev(tmp_path) as second:
        second.json("send", "--to", RECIPIENT)
        chain = second.chain_process
        os.kill(chain, signal.SIGKILL)  # as a power cut would, it saves nothing
        assert second.process.wait(90) == 1
    (tmp_path / "chain.json").write_bytes(saved)
    with dev(tmp_path) as third:
        assert "older than the database" in third.greeting
        assert third.json("tx", "list")["transactions"] == []
        assert third.json("send", "--to", RECIPIENT)["nonce"] == 0


@pytest.mark.parametrize("torn", ["chain.json", "nonchalant.db"])
def test_half_of_the_data_is_not_gone_on_with(tmp_path: Path, torn: str) -> None:
    with dev(tmp_path) as first:
        first.json("send", "--to", RECIPIENT)
        first.stop()
    if torn == "chain.json":
        (tmp_path / torn).write_text('{"block": {"numb')
    else:
        (tmp_path / torn).unlink()
    with dev(tmp_path) as second:
        assert "starting both afresh" in second.greeting
        assert second.json("send", "--to", RECIPIENT)["nonce"] == 0


def test_a_second_dev_or_a_busy_port_is_refused_with_the_remedy(node: Dev, tmp_path: Path) -> None:
    for options, remedy in (
        (["--data", str(node.data), "--port", "0"], "give this one another --data"),
        (["--data", str(tmp_path), "--port", str(node.port)], "choose another by --port"),
        (["--data", str(tmp_path), "--port", "0", "--chain-port", str(node.chain_port)], "another by --chain-port"),
        (["--data", "/dev/null/x"], "cannot use /dev/null/x"),
    ):
        done = run("dev", *options)
        assert done.returncode == 1, options
        assert remedy in done.stderr
    done = run("dev", "--data", str(tmp_path), NONCHALANT_ANVIL="/nonexistent")
    assert "NONCHALANT_ANVIL" in done.stderr


def test_a_restart_in_the_middle_is_waited_for(tmp_path: Path) -> None:
    with dev(tmp_path) as first:
        first.stop_mining()
        sent = first.json("send", "--to", RECIPIENT, "--no-wait")
        watching = subprocess.Popen(
            [PROGRAM, "tx", "watch", sent["id"]],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**surroundings(), "NONCHALANT_URL": first.url},
        )  # fmt: skip
        assert watching.stdout is not None
        assert watching.stdout.readline()
        first.stop(signal.SIGKILL)
        with dev(tmp_path, port=first.port, chain_port=first.chain_port):
            out, _ = watching.communicate(timeout=180)
    assert watching.returncode == 0
    assert "confirmed" in out


def test_a_database_of_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    connection = sqlite3.connect(home / "nonchalant.db", isolation_level=None)
    migrations.create(connection, "old", migrations.known()[:1])
    connection.close()
    with dev(home) as running:
        assert running.json("send", "--to", RECIPIENT)["state"] == "confirmed"
    assert migrations.status(f"sqlite:{home / 'nonchalant.db'}").is_current


def test_serve_stops_cleanly_and_says_what_it_does(node: Dev, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "words").write_text("test test test test test test test test test test test junk")
    (tmp_path / "words").chmod(0o600)
    (tmp_path / "nonchalant.toml").write_text(f"""
        store = "sqlite:nonchalant.db"
        auth = "off"
        [[chains]]
        id = 31337
        endpoints = ["http://127.0.0.1:{node.chain_port}"]
        [[accounts]]
        chains = [31337]
        key = {{ mnemonic = {{ file = "words" }}, path = "m/44'/60'/0'/7" }}
    """)
    process = subprocess.Popen(
        [PROGRAM, "serve"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env={**surroundings(), "NONCHALANT_LISTEN": f"127.0.0.1:{port}"},
    )  # fmt: skip
    assert process.stderr is not None
    first = json.loads(process.stderr.readline())
    assert (first["event"], first["at"]) == ("service.listening", f"http://127.0.0.1:{port}")
    assert run("lane", "list", "--url", f"http://127.0.0.1:{port}").returncode == 0
    process.terminate()
    _, rest = process.communicate(timeout=90)
    assert process.returncode == 0
    # In this order, whatever else a busy machine has it say in between.
    wanted = ["service.stopping", "shutdown.done", "service.stopped"]
    assert [event for line in rest.splitlines() if (event := json.loads(line)["event"]) in wanted] == wanted
