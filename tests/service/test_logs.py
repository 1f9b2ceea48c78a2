"""What is logged can be read by people and machines, and holds no secret."""

import io
import json
import logging
import random
from collections.abc import Iterator

import pytest
import structlog

from nonchalant import logs
from nonchalant.config import LogFormat
from nonchalant.sim.journal import listening
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.trace import Trace
from tests.lessons import lesson


@pytest.fixture(autouse=True)
def _leave_logging_as_it_was() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()


def logged(log_format: LogFormat | None) -> str:
    stream = io.StringIO()
    logs.configure(log_format, stream)
    log = structlog.get_logger()
    log.info(
        "endpoint.down",
        endpoint="node",
        url="https://user:hunter2@node.example:8545/v3/s3cr3t?apikey=s3cr3t",
        password="hunter2",
        nested={"token": "s3cr3t", "list": ["wss://x/s3cr3t"]},
        error=ValueError("cannot reach http://u:hunter2@h/s3cr3t"),
        hash="0x" + "ab" * 32,
        nonce=7,
    )
    try:
        raise ConnectionError("https://hunter2@h/s3cr3t refused")
    except ConnectionError:
        log.exception("lane.restarted")
    logging.getLogger("uvicorn.error").warning("bad %s", "http://u:hunter2@h/")
    return stream.getvalue()


@lesson("secrets-printed")
@pytest.mark.parametrize("log_format", [None, *LogFormat])
def test_no_secret_reaches_the_log(log_format: LogFormat | None) -> None:
    text = logged(log_format)
    assert "hunter2" not in text
    assert "s3cr3t" not in text
    assert "node.example:8545" in text
    assert "0x" + "ab" * 32 in text
    assert "ConnectionError" in text


def test_json_is_one_object_a_line_with_fields() -> None:
    first, second, third = map(json.loads, logged(LogFormat.JSON).splitlines())
    assert (first["event"], first["level"], first["nonce"]) == ("endpoint.down", "info", 7)
    assert first["timestamp"].endswith("Z")
    assert "Traceback" in second["exception"]
    assert third["event"] == "bad http://h/"


def test_without_a_terminal_it_is_json() -> None:
    assert json.loads(logged(None).splitlines()[0])["event"] == "endpoint.down"


def test_addresses_without_secrets_stay_readable() -> None:
    assert logs.clean_text("see http://127.0.0.1:8545 and https://x/") == "see http://127.0.0.1:8545 and https://x/"


@pytest.mark.parametrize("log_format", [None, *LogFormat])
def test_text_that_is_no_unicode_is_logged_all_the_same(log_format: LogFormat | None) -> None:
    raw = io.BytesIO()
    logs.configure(log_format, io.TextIOWrapper(raw, "utf-8", write_through=True))
    structlog.get_logger().warning("request.unstorable", tx="ugly\ud800")
    assert b"ugly" in raw.getvalue()
    assert b"ud800" in raw.getvalue()


def test_inside_another_program_its_own_logging_decides(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    structlog.reset_defaults()
    logs.hand_over()
    log = structlog.get_logger()
    with caplog.at_level(logging.WARNING):
        log.info("not.asked_for", tx="tx_1")
        log.warning("lane.quarantined", lane="1:0xaa", url="https://h/s3cr3t")
    assert [record.getMessage() for record in caplog.records] == [
        "event=lane.quarantined lane=1:0xaa url=https://h/***"
    ]
    assert capfd.readouterr() == ("", "")


def test_a_program_that_has_configured_structlog_is_left_alone() -> None:
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()])
    before = structlog.get_config()
    logs.hand_over()
    assert structlog.get_config() == before


def test_a_simulated_world_leaves_the_logging_of_its_program_as_it_was() -> None:
    structlog.reset_defaults()
    _listen()
    assert not structlog.is_configured()  # or a node that is opened afterwards would not hand over
    logs.hand_over()
    before = structlog.get_config()
    _listen()
    assert structlog.get_config() == before


def _listen() -> None:
    loop = SimLoop(random.Random(1))
    with listening() as journal:
        journal.open(Trace(loop), broke=pytest.fail)
        structlog.get_logger().info("lane.paused")
    loop.close()
