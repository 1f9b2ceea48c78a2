"""What clients do that a service must bear: many at once, nonces of their own, out of order, the same again."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from tests.anvil import ADDRESSES
from tests.clients.conftest import Stand
from tests.clients.stock import HERE, INSTALLED, Cast, Client, ClientError, program
from tests.e2e.rig import until
from tests.lessons import lesson

pytestmark = pytest.mark.asyncio(loop_scope="module")

CROWD, SCRIPT, NUMBERS = ADDRESSES[2], ADDRESSES[3], ADDRESSES[4]
PAYEE = "0x00000000000000000000000000000000000000cc"
MANY = 20


async def mined_until_done(stand: Stand, *tasks: asyncio.Task[object]) -> None:
    await until(lambda: all(task.done() for task in tasks), "all are mined", tick=stand.chain.mine, every=0.2)


@lesson("client-habits")
async def test_twenty_at_once_get_twenty_nonces_without_a_hole(stand: Stand, client: Client) -> None:
    before = int((await stand.rpc("eth_getTransactionCount", CROWD, "latest"))["result"], 16)
    if isinstance(
        client, Cast
    ):  # which sends and waits in one, and names what it read as its nonce: so it is told which
        nonces = list(range(before, before + MANY))
        random.shuffle(nonces)
        running = [asyncio.create_task(_patient(client, nonce)) for nonce in nonces]
        await mined_until_done(stand, *running)
        assert {receipt.result()["status"] for receipt in running} == {"0x1"}
    else:
        hashes = await asyncio.gather(
            *(client.send(**{"from": CROWD, "to": PAYEE, "value": hex(n)}) for n in range(MANY))
        )
        assert len(set(hashes)) == MANY
        waiting = [asyncio.create_task(client.wait(hash)) for hash in hashes]
        await mined_until_done(stand, *waiting)
        assert [(task.result().hash, task.result().status) for task in waiting] == [(hash, 1) for hash in hashes]
    sent = [tx["nonce"] for tx in await stand.of(CROWD) if tx["nonce"] is not None and tx["nonce"] >= before]
    assert sorted(sent) == list(range(before, before + MANY))


async def _patient(cast: Cast, nonce: int) -> dict[str, str]:
    """Again, where the machine was too busy to start the others within the ten seconds that numbers are kept."""
    while True:
        try:
            return await cast.send_and_wait(CROWD, PAYEE, "--value", "1", "--nonce", str(nonce))
        except ClientError as error:
            if "nonce too high" not in str(error):
                raise


@lesson("client-habits")
@pytest.mark.xdist_group("client-cast")
async def test_cast_that_is_run_twice_at_one_nonce_is_one_transaction(stand: Stand, tmp_path: Path) -> None:
    cast = Cast(stand.rpc_url, tmp_path, stand.last_hash)
    nonce = str(int((await stand.rpc("eth_getTransactionCount", NUMBERS, "latest"))["result"], 16))
    pay = (NUMBERS, PAYEE, "--value", "7", "--nonce", nonce)
    hash = await cast._begin(*pay)
    again = asyncio.create_task(cast.send_and_wait(*pay))
    await mined_until_done(stand, cast._waiting[hash], again)
    assert (await cast.wait(hash)).hash == again.result()["transactionHash"] == hash
    assert len([tx for tx in await stand.of(NUMBERS) if tx["nonce"] == int(nonce)]) == 1


@lesson("client-habits")
@pytest.mark.xdist_group("client-forge")
async def test_forge_deploys_and_calls_in_one_script_three_at_once(stand: Stand, tmp_path: Path) -> None:
    project = tmp_path / "project"  # apart from the packages, whose contracts forge would compile too
    project.mkdir()
    shutil.copy(HERE / "Three.s.sol", project)
    shutil.copy(HERE / "solc.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(INSTALLED / "node_modules")
    (project / "foundry.toml").write_text('[profile.default]\nsrc = "."\nscript = "."\nauto_detect_solc = false\n')
    compiler = tmp_path / "solc"
    compiler.write_text(f'#!/bin/sh\nexec "{INSTALLED}/node-program" "{tmp_path}/solc.mjs" "$@"\n')
    compiler.chmod(0o700)
    running = asyncio.create_task(
        program(
            *(str(INSTALLED / "forge"), "script", "Three.s.sol:Three", "--use", str(compiler), "--offline"),
            *("--rpc-url", stand.rpc_url, "--unlocked", "--sender", SCRIPT, "--broadcast", "--json"),
            folder=project,
        )
    )
    await mined_until_done(stand, running)
    running.result()
    made, *calls = [tx for tx in reversed(await stand.of(SCRIPT)) if tx["data"] != "0x"][-3:]
    assert [tx["receipt"]["succeeded"] for tx in (made, *calls)] == [True, True, True]
    kept = await stand.chain.rpc("eth_getStorageAt", made["receipt"]["contract"], "0x0", "latest")
    assert int(kept, 16) == 2
