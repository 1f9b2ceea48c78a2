"""Traces reach a collector: one for each transaction, over nodes and restarts, and they hold no more than they should."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from nonchalant.config import parse_settings
from nonchalant.errors import BadSettings
from nonchalant.observing.callers import Caller, parse
from nonchalant.observing.traces import trace_of
from tests.anvil import Anvil
from tests.service.conftest import OTHER, SENDER, SETTINGS, Running, chain, running

__all__ = ["chain"]

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SECRET = "0xdeadbeefcafe"


@dataclass
class Span:
    name: str
    trace: str
    id: str
    parent: str
    links: list[str]
    attributes: dict[str, Any]
    seconds: float
    failed: bool


@dataclass
class Collector:
    """An OTLP receiver of our own. `hangs`: it takes what comes and never answers."""

    url: str = ""
    raw: bytes = b""
    spans: list[Span] = field(default_factory=list)
    hangs: bool = False

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.hangs:
            await asyncio.sleep(3600)
        self.raw += body
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in batch.scope_spans:
                self.spans += map(read, scope.spans)
        return web.Response(content_type="application/x-protobuf")

    def of(self, tx_id: str) -> dict[str, Span]:
        """The spans of one transaction, by name."""
        trace = f"{trace_of(tx_id).trace_id:032x}"
        return {span.name: span for span in self.spans if span.trace == trace}

    async def have(self, tx_id: str, name: str) -> dict[str, Span]:
        async with asyncio.timeout(60):
            while name not in self.of(tx_id):  # noqa: ASYNC110 - a thread of the node brings it
                await asyncio.sleep(0.1)
        return self.of(tx_id)


def read(span: Any) -> Span:
    attributes = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        [link.trace_id.hex() for link in span.links],
        attributes,
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        span.status.code == 2,
    )


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector, application = Collector(), web.Application()
    application.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    async with collecting() as collector:
        yield collector


def settings(collector: Collector, chain: Anvil) -> str:
    text = SETTINGS.replace("http://127.0.0.1:1", chain.url).replace("request_timeout = 0.5", "poll_interval = 0.05")
    return f'otlp_endpoint = "{collector.url}"\n{text}'


async def sent(node: Running, **headers: str) -> str:
    body = {"chain_id": 31337, "from": SENDER, "to": OTHER, "data": SECRET, "metadata": {"note": "m3tadata"}}
    _, tx, _ = await node.post(body, headers=headers)
    async with asyncio.timeout(60):
        while (await node.get(f"/v1/transactions/{tx['id']}"))[1]["state"] != "sent":  # noqa: ASYNC110 - as a client does
            await asyncio.sleep(0.05)
    return str(tx["id"])


async def ended(node: Running, chain: Anvil, tx_id: str) -> None:
    async with asyncio.timeout(60):
        while (await node.get(f"/v1/transactions/{tx_id}"))[1]["state"] != "confirmed":
            await chain.mine()
            await asyncio.sleep(0.05)


async def test_a_transaction_is_one_trace_from_acceptance_to_finality(
    tmp_path: Path, chain: Anvil, collector: Collector
) -> None:
    async with running(tmp_path, settings(collector, chain)) as node:
        tx_id = await sent(node, traceparent=PARENT)
        await ended(node, chain, tx_id)
        spans = await collector.have(tx_id, "transaction")
        name = node.node.observatory.node
    assert {"accept", "assign", "broadcast", "include", "finalise", "transaction"} <= spans.keys()
    root = spans["transaction"]
    assert (root.parent, root.id) == ("", f"{trace_of(tx_id).span_id:016x}")
    assert root.attributes["nonchalant.state"] == "confirmed"
    assert not root.failed
    for span in spans.values():
        assert span is root or span.parent == root.id, span.name
        assert span.attributes["nonchalant.tx"] == tx_id
        assert span.attributes["nonchalant.node"] == name
        assert span.seconds >= 0
    assert spans["include"].attributes["nonchalant.epoch"] == 1
    # His trace and ours name each other.
    assert spans["accept"].links == [PARENT.split("-")[1]]
    [his] = [span for span in collector.spans if span.trace == PARENT.split("-")[1]]
    assert (his.parent, his.links) == (PARENT.split("-")[2], [root.trace])
    # Nothing of what is sent, and nothing that was told in confidence.
    for hidden in (SECRET, SECRET[2:], "m3tadata", bytes.fromhex(SECRET[2:])):
        assert (hidden if isinstance(hidden, bytes) else hidden.encode()) not in collector.raw


async def test_another_process_adds_to_the_same_trace(tmp_path: Path, chain: Anvil, collector: Collector) -> None:
    async with running(tmp_path, settings(collector, chain)) as first:
        tx_id = await sent(first)
        names = {first.node.observatory.node}
    async with running(tmp_path, settings(collector, chain)) as second:
        names.add(second.node.observatory.node)
        await ended(second, chain, tx_id)
        spans = await collector.have(tx_id, "transaction")
    assert {spans[name].attributes["nonchalant.node"] for name in ("accept", "transaction")} == names
    assert len({span.trace for span in spans.values()}) == 1


async def test_a_collector_that_hangs_holds_nothing_up(tmp_path: Path, chain: Anvil, collector: Collector) -> None:
    collector.hangs = True
    async with running(tmp_path, settings(collector, chain)) as node:
        await ended(node, chain, await sent(node))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PARENT, Caller(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, 1)),
        (PARENT.replace("00-", "cc-", 1) + "-more", Caller(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, 1)),
        (None, None),
        ("", None),
        ("nonsense", None),
        (PARENT.upper(), None),
        (PARENT + "-more", None),
        (PARENT.replace("00-", "ff-", 1), None),
        ("00-" + "0" * 32 + "-00f067aa0ba902b7-01", None),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01", None),
    ],
)
def test_a_callers_trace_is_taken_over_only_if_it_is_one(text: str | None, found: Caller | None) -> None:
    assert parse(text) == found


@pytest.mark.parametrize(
    "text", ["collector:4318", "ftp://s3cr3t@x", "http://", "http://x:y/s3cr3t", "http://x/?k=s3cr3t"]
)
def test_what_is_no_collector_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BadSettings, match="otlp_endpoint: expected") as refusal:
        parse_settings(f'otlp_endpoint = "{text}"\n{SETTINGS}', folder=Path("/"), environ={})
    assert "s3cr3t" not in str(refusal.value)


WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
from nonchalant.cli import main
main()
"""


def test_without_the_extra_a_node_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("test test test test test test test test test test test junk")
    (tmp_path / "words").chmod(0o600)
    (tmp_path / "nonchalant.toml").write_text('otlp_endpoint = "http://u:hunter2@127.0.0.1:4318"\n' + SETTINGS)
    command = [sys.executable, "-c", WITHOUT, "serve"]
    ended = subprocess.run(command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "nonchalant[otel]" in ended.stderr
    assert "hunter2" not in ended.stderr + ended.stdout
