"""Keys and the audit log over REST and by the command line, and the first start."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nonchalant.access import Scope
from nonchalant.audit import Check, Head
from nonchalant.errors import BadSettings, CommitUnknown, StoreUnavailable
from nonchalant.reaching import find_key
from tests import anvil
from tests.e2e.rig import until
from tests.ports import free_port
from tests.service.conftest import OTHER, SENDER, Running
from tests.service.keyed import a_holder, bearer, hand_out, keyed

LANE = f"/v1/lanes/31337/{SENDER}"
PROGRAM = Path(sys.executable).with_name("nonchalant")
SHAPE = re.compile(r"nck_[0-9a-f]{16}_[0-9a-f]{64}")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Running]:
    async with keyed(tmp_path) as service:
        yield service


@pytest.fixture
async def admin(service: Running) -> dict[str, str]:
    return await a_holder(service, Scope.ADMIN, name="ops")


async def entries(service: Running) -> list[dict[str, Any]]:
    """The log since the keys that the test itself handed out."""
    found = await service.node.store.audit_after(0, limit=500)
    check = Check(await service.node.store.audit_head())
    assert check.read(found) is None
    assert check.finish() is None
    return [
        {"actor": one.actor, "name": one.name, "action": one.action, "subject": one.subject, **json.loads(one.data)}
        for one in found
        if one.actor != "command line"
    ]


# over REST


async def test_a_key_is_made_shown_once_listed_and_revoked(service: Running, admin: dict[str, str]) -> None:
    body = {
        "name": "billing",
        "scopes": ["tx:write", "tx:read"],
        "tenant": "shop",
        "lanes": [f"31337:{SENDER}", "1:*"],
        "nonces": "order",
        "fees": "cap",
        "rate": 5,
        "expires_at": "2100-01-01T00:00:00Z",
    }
    status, made, sent = await service.call("POST", "/v1/keys", json=body, headers=admin)
    assert (status, sent["Location"]) == (201, f"/v1/keys/{made['id']}")
    secret = made.pop("key")
    assert SHAPE.fullmatch(secret)
    assert made["live"]
    assert {name: made[name] for name in ("name", "tenant", "nonces", "fees", "rate")} == {
        name: body[name] for name in ("name", "tenant", "nonces", "fees", "rate")
    }
    assert (made["scopes"], made["lanes"]) == (["tx:read", "tx:write"], [f"31337:{SENDER}", "1:*"])
    assert (await service.get("/v1/lanes", headers=bearer(secret)))[0] == 200
    assert (await service.get(f"/v1/keys/{made['id']}", headers=admin))[1] == made
    _, page, _ = await service.get("/v1/keys?limit=1", headers=admin)
    assert page["keys"] == [made]
    _, page, _ = await service.get(f"/v1/keys?cursor={page['next_cursor']}", headers=admin)
    assert [key["name"] for key in page["keys"]] == ["ops"]
    status, revoked, _ = await service.call("POST", f"/v1/keys/{made['id']}/revoke", headers=admin)
    assert (status, revoked["live"]) == (200, False)
    assert revoked["revoked_at"]
    assert (await service.get("/v1/lanes", headers=bearer(secret)))[0] == 401
    digest = (await service.node.store.live_keys([page["keys"][0]["id"]]))[page["keys"][0]["id"]].digest
    for path in ("/v1/keys", f"/v1/keys/{made['id']}", "/v1/audit"):
        text = json.dumps((await service.get(path, headers=admin))[1])
        assert secret not in text
        assert digest not in text


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "scopes"),
        ({"tenant": "a b"}, "tenant"),
        ({"tenant": ""}, "tenant"),
        ({"lanes": []}, "lanes"),
        ({"lanes": ["1"]}, "lanes[0]"),
        ({"lanes": ["*", "x:*"]}, "lanes[1]"),
        ({"lanes": ["1:0x12"]}, "lanes[0]"),
        ({"lanes": ["*"] * 101}, "lanes"),
        ({"rate": 0}, "rate"),
        ({"rate": -1}, "rate"),
        ({"nonces": "any"}, "nonces"),
        ({"fees": "none"}, "fees"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"digest": "00"}, "digest"),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused_by_its_field(
    service: Running, admin: dict[str, str], change: dict[str, Any], field: str
) -> None:
    body = {"name": "x", "scopes": ["tx:read"]} | change
    status, problem, _ = await service.call("POST", "/v1/keys", json=body, headers=admin)
    assert (status, problem["field"].partition("[")[0]) == (400, field.partition("[")[0])
    assert len(await service.node.store.keys(limit=10)) == 1


# the audit log over REST


async def test_what_people_do_with_lanes_and_keys_is_written_down(service: Running, admin: dict[str, str]) -> None:
    ops = (await service.node.store.keys(limit=1))[0].id
    await service.call("POST", f"{LANE}/pause", json={"reason": "look"}, headers=admin)
    await service.call("POST", f"{LANE}/resume", headers=admin)
    _, made, _ = await service.call("POST", "/v1/keys", json={"name": "x", "scopes": ["sign"]}, headers=admin)
    await service.call("POST", f"/v1/keys/{made['id']}/revoke", headers=admin)
    written = await entries(service)
    assert [(one["actor"], one["name"] if one["action"] != "key.create" else "ops") for one in written] == [
        (ops, "ops")
    ] * 4
    assert [(one["action"], one["subject"]) for one in written] == [
        ("lane.pause", f"31337:{SENDER}"),
        ("lane.resume", f"31337:{SENDER}"),
        ("key.create", made["id"]),
        ("key.revoke", made["id"]),
    ]
    assert written[0]["reason"] == "look"
    status, page, _ = await service.get("/v1/audit?after=2&limit=2", headers=admin)
    assert status == 200
    assert [one["position"] for one in page["entries"]] == [3, 4]
    assert page["head"]["position"] == 5


async def test_what_did_not_come_about_is_written_too_and_secrets_are_not(
    service: Running, admin: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nonchalant.asking.PATIENCE_SECONDS", 0.1)  # the chain does not answer: nobody grants anything
    holder = "ab" * 16
    await service.call("POST", f"{LANE}/reservations/5/release", json={"holder": holder}, headers=admin)
    ordered, failed = await entries(service)
    assert (ordered["action"], ordered["subject"]) == ("lane.reservation.release", f"31337:{SENDER}/5")
    assert "holder" not in ordered
    assert (failed["action"], failed["entry"]) == ("lane.reservation.release.failed", 2)
    assert failed["code"]
    assert holder not in json.dumps((await service.get("/v1/audit", headers=admin))[1])


async def test_a_new_webhook_is_named_once_it_is_there_and_its_url_is_not_told(
    service: Running, admin: dict[str, str]
) -> None:
    body = {"url": "https://user:hunter2@hooks.example.org/services/T0KEN?key=s3cr3t", "description": "x"}
    status, made, _ = await service.call("POST", "/v1/webhooks", json=body, headers=admin)
    ordered, came = await entries(service)
    assert "hunter2" not in json.dumps(ordered)
    assert "T0KEN" not in json.dumps(ordered)
    if status == 201:
        assert (came["action"], came["subject"], came["entry"]) == ("webhook.create.made", made["id"], 2)
    else:
        assert (came["action"], came["code"]) == ("webhook.create.failed", made["code"])


async def test_what_was_never_ordered_is_not_written(service: Running, admin: dict[str, str]) -> None:
    reader = await a_holder(service, Scope.TX_READ)
    tries = [
        (f"{LANE}/pause", {"reasons": "x"}, admin, 400),
        (f"/v1/lanes/31337/{'0x' + '12' * 20}/pause", {}, admin, 404),
        (f"{LANE}/pause", {}, reader, 403),
        (f"{LANE}/pause", {}, {}, 401),
        ("/v1/keys/key_nope/revoke", {}, admin, 404),
    ]
    for path, body, headers, status in tries:
        assert (await service.call("POST", path, json=body, headers=headers))[0] == status
    assert await entries(service) == []


@pytest.mark.parametrize("trouble", [StoreUnavailable, CommitUnknown])
async def test_what_cannot_be_written_is_not_done(
    service: Running, admin: dict[str, str], monkeypatch: pytest.MonkeyPatch, trouble: type[Exception]
) -> None:
    async def refuse(deed: object) -> int:
        raise trouble

    monkeypatch.setattr(service.node.store, "note", refuse)
    status, problem, _ = await service.call("POST", f"{LANE}/pause", headers=admin)
    assert (status, problem["code"]) == (503, "store_unavailable")
    assert (await service.get(LANE, headers=admin))[1]["control"]["mode"] == "open"


# by the command line, and the first start

NODE = """
store = "sqlite:nonchalant.db"
listen = "127.0.0.1:{port}"
[[chains]]
id = 31337
endpoints = ["http://127.0.0.1:1"]
[[accounts]]
chains = [31337]
key = {{ env = "RELAYER_KEY" }}
"""


class Operator:
    """Somebody at a terminal, in a folder with settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        (folder / "nonchalant.toml").write_text(NODE.format(port=self.port))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("NONCHALANT_")} | {
            "RELAYER_KEY": anvil.KEYS[0],
            "NONCHALANT_URL": f"http://127.0.0.1:{self.port}",
        }

    async def start(self, output: str, *, port: int | None = None) -> asyncio.subprocess.Process:
        listen = {} if port is None else {"NONCHALANT_LISTEN": f"127.0.0.1:{port}"}
        with (self.folder / output).open("wb") as out, (self.folder / f"{output}.log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                PROGRAM, "serve",
                cwd=self.folder, env=self.environment | listen, stdout=out, stderr=log,
            )  # fmt: skip

    async def run(self, *arguments: str, key: str | None = None) -> tuple[int, str, str]:
        given = {} if key is None else {"NONCHALANT_KEY": key}
        process = await asyncio.create_subprocess_exec(
            PROGRAM, *arguments,
            cwd=self.folder, env=self.environment | given,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def ready(self, output: str, nodes: int = 1) -> None:
        def listening() -> bool:
            logs = [(self.folder / f"{name}.log").read_text() for name in output.split()]
            return sum("service.listening" in text for text in logs) == nodes

        await until(listening, "the node listens", seconds=120)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


async def stop(*processes: asyncio.subprocess.Process) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        await process.wait()


async def test_the_first_start_shows_one_admin_key_once_and_with_it_others_are_given_out(operator: Operator) -> None:
    nodes = [await operator.start("one"), await operator.start("two", port=free_port())]
    try:
        await operator.ready("one two", nodes=2)
        shown = [text for name in ("one", "two") for text in SHAPE.findall((operator.folder / name).read_text())]
        [key] = shown  # of two that start at once, one shows it
        logs = [(operator.folder / f"{name}.log").read_text() for name in ("one", "two")]
        assert not any("nck_" in text for text in logs)
        code, _, err = await operator.run("lane", "list")
        assert code == 1
        assert "NONCHALANT_KEY" in err
        code, out, _ = await operator.run("lane", "list", "--json", key=key)
        assert (code, len(json.loads(out)["lanes"])) == (0, 1)
        code, out, err = await operator.run(
            "key", "create", "billing", "--scope", "tx:read", "--expires", "90d", key=key
        )
        assert code == 0
        assert SHAPE.fullmatch(out.strip())  # alone, so that a script can take it
        assert "nck_" not in err
        file = operator.folder / "billing.key"
        file.write_text(out)
        code, _, err = await operator.run("tx", "list", "--key-file", str(file))
        assert (code, "chmod 600" in err) == (1, True)
        file.chmod(0o600)
        assert (await operator.run("tx", "list", "--key-file", str(file)))[0] == 0
        assert (await operator.run("key", "list", "--key-file", str(file)))[0] == 1
        code, out, _ = await operator.run("key", "list", "--json", key=key)
        [billing, first] = json.loads(out)["keys"]
        assert (billing["name"], first["name"]) == ("billing", "first admin")
        assert (await operator.run("key", "revoke", billing["id"], key=key))[0] == 0
        assert (await operator.run("tx", "list", "--key-file", str(file)))[0] == 1
        code, out, _ = await operator.run("audit", "verify", "--json", key=key)
        assert (code, json.loads(out)["entries"]) == (0, 3)
        code, out, _ = await operator.run("audit", "list", key=key)
        assert [word in out for word in ("first start", "key.create", "key.revoke", billing["id"])] == [True] * 4
    finally:
        await stop(*nodes)
    again = await operator.start("again")
    try:
        await operator.ready("again")
        assert (operator.folder / "again").read_text() == ""
    finally:
        await stop(again)


async def test_who_lost_his_keys_gets_back_in_by_the_store(operator: Operator) -> None:
    config = ("--config", "nonchalant.toml")
    code, out, _ = await operator.run("key", "create", "me", "--scope", "admin", "--json", *config)
    made = json.loads(out)
    assert (code, made["scopes"]) == (0, ["admin"])
    code, out, _ = await operator.run("key", "list", "--json", *config)
    assert [key["id"] for key in json.loads(out)["keys"]] == [made["id"]]
    code, out, _ = await operator.run("doctor", "--json")
    assert "1 of 1 can be used, 1 of them by an admin" in out
    assert (await operator.run("key", "revoke", made["id"], *config))[0] == 0
    code, out, _ = await operator.run("doctor", "--json")
    assert (code, "key create NAME --scope admin --config FILE" in out) == (1, True)
    assert (await operator.run("key", "revoke", "key_nope", *config))[0] == 1
    code, out, _ = await operator.run("audit", "list", "--json", *config)
    assert [(one["actor"], one["action"]) for one in json.loads(out)["entries"]] == [
        ("command line", "key.create"),
        ("command line", "key.revoke"),
    ]
    code, out, _ = await operator.run("config", "check")
    assert "every call needs an API key" in out


async def test_verifying_names_the_first_broken_entry_and_fails(operator: Operator) -> None:
    config = ("--config", "nonchalant.toml")
    for name in ("a", "b", "c"):
        assert (await operator.run("key", "create", name, "--scope", "sign", *config))[0] == 0
    code, out, _ = await operator.run("audit", "verify", "--json", *config)
    whole = json.loads(out)
    assert (code, whole["ok"], whole["entries"]) == (0, True, 3)
    assert (await operator.run("audit", "verify", "--head", whole["head"], *config))[0] == 0
    with sqlite3.connect(operator.folder / "nonchalant.db") as database:
        database.execute("DROP TRIGGER audit_entries_never_change")
        database.execute("DROP TRIGGER audit_entries_stay")
        database.execute("DELETE FROM audit WHERE position = 3")
        database.execute("UPDATE audit_head SET position = 2, hash = (SELECT hash FROM audit WHERE position = 2)")
    assert (await operator.run("audit", "verify", *config))[0] == 0  # nobody can tell, without the hash
    code, out, _ = await operator.run("audit", "verify", "--head", whole["head"], *config)
    assert (code, "entry 3" in out) == (1, True)
    with sqlite3.connect(operator.folder / "nonchalant.db") as database:
        database.execute("UPDATE audit SET subject = 'x' WHERE position = 2")
    code, out, _ = await operator.run("audit", "verify", "--json", *config)
    broken = json.loads(out)
    assert (code, broken["ok"], broken["broken"], broken["entries"]) == (1, False, 2, 1)


def test_a_key_is_found_in_a_private_file_or_in_the_environment(tmp_path: Path) -> None:
    text = f"nck_{'1' * 16}_{'2' * 64}"
    file = tmp_path / "key"
    file.write_text(text + "\n")
    file.chmod(0o600)
    assert find_key(file, {"NONCHALANT_KEY": "ignored"}) == text
    assert find_key(None, {"NONCHALANT_KEY": text}) == text
    assert find_key(None, {}) is None
    for wrong in ("secret-but-not-ours", text + "0"):
        with pytest.raises(BadSettings) as refused:
            find_key(None, {"NONCHALANT_KEY": wrong})
        assert wrong not in str(refused.value)
    file.write_text("")
    with pytest.raises(BadSettings, match="--key-file"):
        find_key(file, {})


async def test_an_empty_log_is_whole(service: Running) -> None:
    assert Check(await service.node.store.audit_head()).finish() is None
    assert await service.node.store.audit_head() == Head()


async def test_the_holder_of_a_key_is_not_shown_who_else_there_is(service: Running) -> None:
    reader = await a_holder(service, Scope.TX_READ)
    key, _ = await hand_out(service, Scope.TX_READ)
    there = await service.get(f"/v1/keys/{key.id}", headers=reader)
    nowhere = await service.get("/v1/keys/key_nope", headers=reader)
    assert there[:2] == nowhere[:2]
    assert OTHER not in json.dumps(there[1])
