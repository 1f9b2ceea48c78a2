"""Logging: events with fields, for people or as JSON lines, on stderr, with secrets taken out.

Everything goes through structlog, the standard library's loggers (uvicorn, aiohttp) included.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from nonchalant.config import LogFormat

HIDDEN: Final = "***"

_SECRET_FIELDS: Final = frozenset(
    {"authorization", "key", "mnemonic", "passphrase", "password", "phrase", "private_key", "secret", "token"}
)
# What stands before the host, and every path and query behind it: providers put their API keys there.
_URL: Final = re.compile(r"\b((?:https?|wss?|postgres(?:ql)?)://)(?:[^\s/@\"']*@)?([^\s/?#\"']+)([/?#][^\s\"'<>)\]]*)?")

# An API key of ours, wherever somebody put it, also one that was cut off.
_KEY: Final = re.compile(r"nck_[0-9a-f]{16}_[0-9a-f]{8,}")


def configure(log_format: LogFormat | None = None, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Send all logging to `stream` (by default stderr). Without a format: for people if it is a terminal, else JSON."""
    stream = sys.stderr if stream is None else stream
    if log_format is None:
        log_format = LogFormat.HUMAN if stream.isatty() else LogFormat.JSON
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.UnicodeDecoder(),
        redact,
    ]
    renderer: Processor
    if log_format is LogFormat.JSON:
        renderer = structlog.processors.JSONRenderer(sort_keys=False)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=24)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def hand_over() -> None:
    """Inside somebody else's program: to the standard library's loggers, so that its handlers and levels decide.

    A program that has configured structlog itself is left alone.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            structlog.processors.UnicodeDecoder(),
            redact,
            structlog.processors.LogfmtRenderer(key_order=["event"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The event without secrets: fields that are named like one, and what URLs carry beside their host."""
    return {key: HIDDEN if key.lower() in _SECRET_FIELDS else _clean(value) for key, value in event.items()}


def clean_text(text: str) -> str:
    """The text without keys, with every URL cut down to its host, and in characters that every handler can write."""
    return _KEY.sub(HIDDEN, _URL.sub(_host_only, text)).encode("utf-8", "backslashreplace").decode()


def _clean(value: object) -> object:
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {
                key: HIDDEN if isinstance(key, str) and key.lower() in _SECRET_FIELDS else _clean(item)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_clean(item) for item in value]
        case BaseException():
            return clean_text(repr(value))
        case _:
            return value


def _host_only(url: re.Match[str]) -> str:
    scheme, host, rest = url.groups()
    return f"{scheme}{host}/{HIDDEN}" if rest and rest != "/" else f"{scheme}{host}{rest or ''}"
