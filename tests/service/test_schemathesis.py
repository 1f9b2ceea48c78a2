"""What the OpenAPI document says is what the service does: schemathesis tries it, over real HTTP and a real chain."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from nonchalant.access import Scope
from nonchalant.service import events
from tests.anvil import running as anvil_running
from tests.service.conftest import running
from tests.service.keyed import WITH_KEYS, a_holder

HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
# What is tried side by side, and how often each call of it: whoever steers a lane waits for its owner.
PARTS = {
    ("--include-tag", "lanes"): 40,
    ("--include-tag", "rpc"): 200,
    ("--include-tag", "transactions"): 78,
    ("--exclude-tag-regex", "^(lanes|rpc|transactions)$"): 78,
}
SHARE = float(os.environ.get("SCHEMATHESIS_SHARE", "1"))  # of it, by hand
CASES = 5_000
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "ignored_auth",
    "unsupported_method",
    "allow_header_conformance",
)


def briefly(stream: Callable[..., AsyncGenerator[bytes, None]]) -> Callable[..., AsyncGenerator[bytes, None]]:
    """Its first pieces: schemathesis waits for the end of an answer."""

    async def first(*given: Any) -> AsyncGenerator[bytes, None]:
        async with aclosing(stream(*given)) as pieces:
            for _ in range(2):
                yield await anext(pieces)

    return first


@pytest.mark.timeout(900)
async def test_thousands_of_cases_are_answered_as_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_frames", briefly(events._frames))
    async with anvil_running(block_time=1) as chain:
        settings = WITH_KEYS.replace("http://127.0.0.1:1", chain.url).replace(
            "request_timeout = 0.5", "poll_interval = 0.2"
        )
        async with running(tmp_path, settings) as service:
            key = (await a_holder(service, *Scope))["Authorization"]
            async with asyncio.TaskGroup() as trying:
                parts = [
                    trying.create_task(try_out(service.url, key, part, most, tmp_path)) for part, most in PARTS.items()
                ]
    tried = [part.result() for part in parts]
    print(f"schemathesis: {sum(tried)} cases")
    assert sum(tried) >= CASES * SHARE


async def try_out(url: str, key: str, part: tuple[str, ...], most: int, folder: Path) -> int:
    """How many cases there were; all of them passed."""
    # In JSON-RPC what is wrong is told with status 200.
    checks = [check for check in CHECKS if "rpc" not in part or check != "negative_data_rejection"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", *part),
        *("--checks", ",".join(checks), "--phases", "examples,coverage,fuzzing", "--continue-on-failure"),
        *("--max-examples", str(round(most * SHARE)), "--seed", "20261116", "--workers", "1"),
        *("--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "120"),
        *("--header", f"Authorization: {key}"),
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": HOOKS.stem,
            "PYTHONPATH": str(HOOKS.parent),
            "NONCHALANT_TRIED": url,
            "NONCHALANT_TRIED_WITH": key,
        },
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    text = said.decode()
    assert process.returncode == 0, text
    found = re.search(r"(\d[\d,]*) generated", text)
    assert found is not None, text
    return int(found[1].replace(",", ""))
