"""Reading the file and the environment: what stands at the top, and what must agree between its tables."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from nonchalant import installation
from nonchalant.config.accounts import check_accounts, parse_account
from nonchalant.config.chains import parse_chain
from nonchalant.config.settings import Auth, Listen, LogFormat, Settings
from nonchalant.errors import BadSettings
from nonchalant.installation import Installation
from nonchalant.tables import Found, Table, bad, days, each, file_path, one_of, refuse_duplicates, seconds, string
from nonchalant.targets import Targets
from nonchalant.values import replace

DEFAULT_FILE: Final = "nonchalant.toml"

# Scalars at the top, each with the variable that wins over the file.
VARIABLES: Final = {
    key: f"NONCHALANT_{key.upper()}"
    for key in (
        "store",
        "listen",
        "auth",
        "log_format",
        "lease_seconds",
        "retention",
        "attention_hook",
        "webhook_targets",
        "listen_dsn",
        "otlp_endpoint",
    )
}


def load_settings(file: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this file (by default `nonchalant.toml` in the current folder) under this environment."""
    path = Path(DEFAULT_FILE if file is None else file)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadSettings(
            f"there is no {path}; write one, or name it by --config (to try without any, run `nonchalant dev`)"
        ) from None
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadSettings(f"{path} is not UTF-8 text") from None
    return parse_settings(text, folder=path.parent, environ=os.environ if environ is None else environ, name=str(path))


def parse_settings(text: str, *, folder: Path, environ: Mapping[str, str], name: str = DEFAULT_FILE) -> Settings:
    """Paths in the text start at `folder`, those from the environment at the current folder."""
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadSettings(f"{name} is not valid TOML: {error}") from None
    _refuse_misspelt_variables(environ)
    here = Path.cwd()
    overrides = {
        key: Found(environ[variable], variable, here, from_environment=True)
        for key, variable in VARIABLES.items()
        if variable in environ
    }
    root = Table(Found(values, "", folder.absolute()), (*VARIABLES, "chains", "accounts"), overrides)
    settings = Settings(
        store=root.need("store", _store, 'add store = "sqlite:nonchalant.db"'),
        listen=root.take("listen", _listen, Listen("127.0.0.1", 8645)),
        auth=root.take("auth", _auth, "keys"),
        log_format=root.take("log_format", one_of(LogFormat), None),
        lease_seconds=root.take("lease_seconds", seconds(2, 300), 10.0),
        retention=root.take("retention", days(30, 36_500), 90),
        attention_hook=root.take("attention_hook", _hook, None),
        webhook_targets=root.take("webhook_targets", one_of(Targets), Targets.PUBLIC),
        listen_dsn=root.take("listen_dsn", _postgres, None),
        otlp_endpoint=root.take("otlp_endpoint", _collector, None),
        chains=root.need("chains", each(parse_chain), "add a [[chains]] table"),
        accounts=root.need("accounts", each(parse_account), "add an [[accounts]] table"),
    )
    refuse_duplicates("chains", "id", [str(chain.id) for chain in settings.chains])
    check_accounts(settings)
    if settings.auth == "off" and not settings.listen.is_loopback:
        raise bad(
            "listen",
            f'{settings.listen} can be reached from outside; listen on 127.0.0.1, or ask for keys with auth = "keys"',
        )
    if settings.listen_dsn is not None and not Installation.is_meant_by(settings.store):
        raise bad("listen_dsn", "only a store on PostgreSQL has wake-ups; leave it out")
    return settings


def _hook(found: Found) -> str:
    name = string(found)
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", name, re.ASCII):
        raise bad(found.path, 'expected "package.module:function"')
    return name


def _collector(found: Found) -> str:
    """It may carry a password, so no error repeats it."""
    try:
        parts = urlsplit(string(found))
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable &= not (parts.query or parts.fragment)
    except ValueError:
        usable = False
    if not usable:
        raise bad(found.path, 'expected where a collector takes OTLP over HTTP, such as "http://127.0.0.1:4318"')
    return string(found)


def _store(found: Found) -> str:
    text = string(found)
    scheme, colon, path = text.partition(":")
    if scheme in installation.SCHEMES:
        return _postgres(found)
    if scheme != "sqlite" or not colon or not path:
        raise bad(found.path, 'expected "sqlite:PATH" or "postgresql://USER@HOST/DATABASE"')
    if path == ":memory:":
        raise bad(found.path, "what is accepted must survive the process; name a file")
    return f"sqlite:{file_path(replace(found, value=path))}"


def _postgres(found: Found) -> str:
    """The address as it is given: it may carry a password, so no error repeats it."""
    try:
        Installation.parse(string(found))
    except ValueError as error:
        raise bad(found.path, str(error)) from None
    return string(found)


def _listen(found: Found) -> Listen:
    address = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})", string(found), re.ASCII)
    if address is None or int(address.group(3)) > 65535:
        raise bad(found.path, 'expected "HOST:PORT", such as "127.0.0.1:8645"')
    return Listen(address.group(1) or address.group(2), int(address.group(3)))


def _auth(found: Found) -> Auth:
    if found.value == "keys":
        return "keys"
    if found.value == "off":
        return "off"
    raise bad(found.path, 'expected "keys", or "off" on a loopback address')


def _refuse_misspelt_variables(environ: Mapping[str, str]) -> None:
    """Variables of the same prefix may be anybody's (NONCHALANT_URL, a key's); only what looks like ours is refused."""
    known = list(VARIABLES.values())
    for variable in environ:
        if variable.startswith("NONCHALANT_") and variable not in known:
            near = difflib.get_close_matches(variable, known, n=1, cutoff=0.9)
            if near:
                raise bad(variable, f"unknown variable; did you mean {near[0]}?")
