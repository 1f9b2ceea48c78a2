"""One settings file, read strictly."""

import dataclasses
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonchalant.config import (
    DataFee,
    FixedPrices,
    Keystore,
    Listen,
    LogFormat,
    Mnemonic,
    OraclePrices,
    PrivateKey,
    Settings,
    Unit,
    load_settings,
    parse_settings,
)
from nonchalant.errors import BadSettings
from nonchalant.fees import FeeRules
from nonchalant.health import HealthRules
from nonchalant.policy import Blocks, Patience
from nonchalant.secret import EnvSecret, FileSecret
from nonchalant.windows import Pace
from nonchalant.words import Speed
from tests.lessons import lesson

FOLDER = Path("/etc/nonchalant")

SMALLEST = """
store = "sqlite:nonchalant.db"

[[chains]]
id = 1
endpoints = ["http://127.0.0.1:8545"]

[[accounts]]
chains = [1]
key = { env = "RELAYER_KEY" }
"""

FULL = """
store = "sqlite:/var/lib/nonchalant.db"
listen = "[::1]:9000"
auth = "off"
log_format = "json"
lease_seconds = 5

[[chains]]
id = 1
endpoints = ["https://user:hunter2@node.example/v3/s3cr3t", { url = "http://10.0.0.1:8545", name = "own" }]
finality = "tag"
poll_interval = 0.5
request_timeout = 3
fees = { speed = "fast", min_priority_fee_per_gas = "1 gwei", max_priority_fee_per_gas = 5000000000, max_fee_per_gas = "500gwei", replacement_percent = 12, bump_after = { fast = 7.5, standard = "5 blocks" } }

[[chains]]
id = 137
endpoints = ["http://127.0.0.1:8546"]
finality = 64
data_fee = "op-stack"

[[accounts]]
chains = [1, 137]
key = { file = "relayer.key" }
window = 16
mode = "strict"
shared = true
health = { min_balance = "0.5 ether", movement_within = 0, confirmation_within = 7200, max_resets = 3 }
fees = { max_fee_per_gas = "300 gwei", max_priority_fee_per_gas = 4000000000 }
queue_limit = 100

[[accounts]]
chains = [1]
key = { keystore = "/keys/a.json", password = { env = "PASSWORD" } }

[[accounts]]
chains = [137]
key = { mnemonic = { file = "words" }, path = "m/44'/60'/1'/0", count = 5 }
"""


def read(text: str, **environ: str) -> Settings:
    return parse_settings(text, folder=FOLDER, environ=environ)


def refusal(text: str, **environ: str) -> str:
    with pytest.raises(BadSettings) as caught:
        read(text, **environ)
    return str(caught.value)


def test_the_smallest_file_gets_the_defaults() -> None:
    settings = read(SMALLEST)
    assert settings.store == "sqlite:/etc/nonchalant/nonchalant.db"
    assert settings.listen == Listen("127.0.0.1", 8645)
    assert (settings.auth, settings.log_format, settings.lease_seconds) == ("keys", None, 10.0)
    assert (settings.retention, settings.attention_hook) == (90, None)
    (chain,) = settings.chains
    assert (chain.finality, chain.depth, chain.poll_interval, chain.request_timeout) == ("tag", None, 1.0, 10.0)
    assert chain.fees == FeeRules()
    assert (chain.data_fee, chain.charges_for_data) == (DataFee.NONE, False)
    assert [(endpoint.name, endpoint.url) for endpoint in chain.endpoints] == [
        ("127.0.0.1:8545", "http://127.0.0.1:8545")
    ]
    (account,) = settings.accounts
    assert account.key == PrivateKey(EnvSecret("RELAYER_KEY", "accounts[0].key.env"))
    assert (account.chains, account.window, account.queue_limit) == ((1,), 16, 10_000)
    assert (account.mode, account.max_fee, account.max_priority) == (Pace.PIPELINED, None, None)
    assert (account.shared, account.health) == (False, HealthRules())
    assert chain.bump_after == Patience().bump_after


def test_every_setting_is_read() -> None:
    settings = read(FULL)
    assert (settings.listen, settings.log_format, settings.lease_seconds) == (Listen("::1", 9000), LogFormat.JSON, 5.0)
    main, side = settings.chains
    assert [endpoint.name for endpoint in main.endpoints] == ["node.example", "own"]
    assert main.fees == FeeRules(
        speed=Speed.FAST,
        min_priority=10**9,
        max_priority=5 * 10**9,
        max_fee=500 * 10**9,
        replacement_percent=12,
    )
    assert main.bump_after == {Speed.SLOW: 180_000, Speed.STANDARD: Blocks(5), Speed.FAST: 7_500}
    own = settings.accounts[0]
    assert (own.mode, own.max_fee, own.max_priority) == (Pace.STRICT, 300 * 10**9, 4 * 10**9)
    assert own.shared
    assert own.health == HealthRules(
        min_balance=5 * 10**17, movement_within=None, confirmation_within=7200.0, max_resets=3
    )
    assert (side.finality, side.depth) == (64, 64)
    assert (side.data_fee, side.charges_for_data) == (DataFee.OP_STACK, True)
    assert settings.chain(137) is side
    assert settings.chain(5) is None
    file, keystore, mnemonic = (account.key for account in settings.accounts)
    assert file == PrivateKey(FileSecret(FOLDER / "relayer.key", "accounts[0].key.file"))
    assert keystore == Keystore(
        Path("/keys/a.json"), EnvSecret("PASSWORD", "accounts[1].key.password.env"), "accounts[1].key"
    )
    assert mnemonic == Mnemonic(
        FileSecret(FOLDER / "words", "accounts[2].key.mnemonic.file"), "m/44'/60'/1'/0", 5, "accounts[2].key"
    )


def test_one_patience_may_hold_for_every_speed() -> None:
    for written, meant in (("30", 30_000), ('"1 block"', Blocks(1)), ('"12 blocks"', Blocks(12))):
        [chain] = read(SMALLEST.replace("id = 1\n", f"id = 1\nfees = {{ bump_after = {written} }}\n")).chains
        assert chain.bump_after == dict.fromkeys(Speed, meant)


def test_of_the_chain_s_caps_and_the_account_s_the_lower_one_counts() -> None:
    settings = read(FULL)
    capped = settings.accounts[0].capped(settings.chains[0].fees)
    assert (capped.max_fee, capped.max_priority) == (300 * 10**9, 4 * 10**9)
    assert settings.accounts[1].capped(settings.chains[0].fees) == settings.chains[0].fees


def priced(fees: str) -> FixedPrices | OraclePrices | None:
    [chain] = read(SMALLEST.replace("id = 1\n", f"id = 1\nfees = {{ {fees} }}\n")).chains
    return chain.prices


def test_prices_come_from_the_nodes_unless_the_settings_say_otherwise() -> None:
    assert read(SMALLEST).chains[0].prices is None
    assert priced('speed = "fast"') is None
    assert priced('source = "node"') is None


def test_fixed_prices_are_one_amount_or_one_a_speed() -> None:
    assert priced('source = "fixed", fixed = 0') == FixedPrices(dict.fromkeys(Speed, 0))
    assert priced('source = "fixed", fixed = "1.5 gwei"') == FixedPrices(dict.fromkeys(Speed, 1_500_000_000))
    assert priced('source = "fixed", fixed = { standard = 2, fast = "5 gwei" }') == FixedPrices(
        {Speed.SLOW: 2, Speed.STANDARD: 2, Speed.FAST: 5 * 10**9}
    )


ORACLE = 'source = "oracle", oracle = { url = "https://gas.example/v2?key=s3cr3t", unit = "gwei", '


def test_an_oracle_is_read_with_its_defaults() -> None:
    prices = priced(ORACLE + 'paths = { standard = "result[0].price" } }')
    assert prices == OraclePrices(
        url="https://gas.example/v2?key=s3cr3t",
        headers={},
        paths=dict.fromkeys(Speed, ("result", 0, "price")),
        unit=Unit.GWEI,
    )
    assert isinstance(prices, OraclePrices)
    assert (prices.includes_base_fee, prices.timeout, prices.max_age, prices.unit.decimals) == (False, 2.0, 60.0, 9)
    assert "s3cr3t" not in repr(prices)


def test_every_setting_of_an_oracle_is_read() -> None:
    prices = priced(
        ORACLE.replace("gwei", "wei")
        + 'paths = { slow = "a", standard = "b.c-d", fast = "[2][0].e" }, includes_base_fee = true, timeout = 0.5, '
        'max_age = 10, headers = { X-Key = { env = "ORACLE_KEY" }, Authorization = { file = "token" } } }'
    )
    assert isinstance(prices, OraclePrices)
    assert prices.paths == {Speed.SLOW: ("a",), Speed.STANDARD: ("b", "c-d"), Speed.FAST: (2, 0, "e")}
    assert (prices.unit.decimals, prices.includes_base_fee, prices.timeout, prices.max_age) == (0, True, 0.5, 10.0)
    assert prices.headers == {
        "X-Key": EnvSecret("ORACLE_KEY", "chains[0].fees.oracle.headers.X-Key.env"),
        "Authorization": FileSecret(FOLDER / "token", "chains[0].fees.oracle.headers.Authorization.file"),
    }


@pytest.mark.parametrize(
    ("fees", "named", "remedy"),
    [
        ('source = "guess"', "source", "node, fixed, oracle"),
        ('sauce = "node"', "sauce", "did you mean source?"),
        ("fixed = 5", "fixed", 'not used while source is "node"; set source = "fixed"'),
        ('source = "fixed", fixed = 5, oracle = {}', "oracle", 'not used while source is "fixed"'),
        ('source = "fixed"', "fixed", "missing"),
        ('source = "fixed", fixed = -1', "fixed", "expected an amount"),
        ('source = "fixed", fixed = {}', "fixed.standard", "this one not"),
        ('source = "fixed", fixed = { standard = 1, swift = 2 }', "fixed.swift", "unknown key"),
        ('source = "fixed", fixed = { standard = 1, fast = "x" }', "fixed.fast", "expected an amount"),
        ('source = "oracle"', "oracle", "missing"),
        ('source = "oracle", oracle = {}', "oracle.url", "missing"),
        ('source = "oracle", oracle = { url = "ftp://x" }', "oracle.url", "http://"),
        (ORACLE.replace(', unit = "gwei", ', " }"), "oracle.paths", "missing"),
        (ORACLE + "paths = {} }", "oracle.paths.standard", "missing"),
        (ORACLE.replace('unit = "gwei", ', "") + 'paths = { standard = "a" } }', "oracle.unit", '"wei" or "gwei"'),
        (ORACLE.replace("gwei", "ether") + 'paths = { standard = "a" } }', "oracle.unit", "wei, gwei"),
        *(
            (ORACLE + f"paths = {{ standard = {path} }} }}", "oracle.paths.standard", "expected")
            for path in ('""', '"."', '"a."', '".a"', '"a..b"', '"a[x]"', '"a[-1]"', '"a[0"', '"a[0]b"', "5", '"a[٣]"')
        ),
        (ORACLE + f'paths = {{ standard = "{"a" * 201}" }} }}', "oracle.paths.standard", "expected the way"),
        (ORACLE + 'paths = { standard = "a" }, timeout = 0 }', "oracle.timeout", "expected seconds"),
        (ORACLE + 'paths = { standard = "a" }, max_age = 0 }', "oracle.max_age", "expected seconds"),
        (ORACLE + 'paths = { standard = "a" }, includes_base_fee = 1 }', "oracle.includes_base_fee", "true or false"),
        (ORACLE + 'paths = { standard = "a" }, headers = 5 }', "oracle.headers", "expected a table"),
        (ORACLE + 'paths = { standard = "a" }, headers = { X = "k" } }', "oracle.headers.X", "never stands in"),
        (
            ORACLE + 'paths = { standard = "a" }, headers = { "a b" = { env = "K" } } }',
            "oracle.headers",
            "no name of a",
        ),
        (ORACLE + 'paths = { standard = "a" }, colour = 1 }', "oracle.colour", "unknown key"),
    ],
)
def test_wrong_prices_are_named_with_their_remedy(fees: str, named: str, remedy: str) -> None:
    message = refusal(SMALLEST.replace("id = 1\n", f"id = 1\nfees = {{ {fees} }}\n"))
    assert message.startswith(f"chains[0].fees.{named}: ")
    assert remedy in message
    assert "s3cr3t" not in message


def test_endpoints_of_one_host_are_numbered() -> None:
    settings = read(SMALLEST.replace('"http://127.0.0.1:8545"', '"http://x/a", "http://x/b", "http://y"'))
    assert [endpoint.name for endpoint in settings.chains[0].endpoints] == ["x#1", "x#2", "y"]


def test_the_environment_wins_over_the_file() -> None:
    settings = read(
        FULL,
        NONCHALANT_STORE="sqlite:here.db",
        NONCHALANT_LISTEN="localhost:1",
        NONCHALANT_LOG_FORMAT="human",
        NONCHALANT_LEASE_SECONDS="2.5",
        NONCHALANT_RETENTION="30",
    )
    assert settings.store == f"sqlite:{Path.cwd() / 'here.db'}"
    assert settings.listen == Listen("localhost", 1)
    assert (settings.log_format, settings.lease_seconds) == (LogFormat.HUMAN, 2.5)
    assert settings.retention == 30


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        read(SMALLEST).store = "sqlite:other.db"  # type: ignore[misc]


@lesson("secrets-printed")
def test_secrets_are_in_no_repr() -> None:
    shown = repr(read(FULL))
    assert "hunter2" not in shown
    assert "s3cr3t" not in shown


@pytest.mark.parametrize(
    ("change", "named", "remedy"),
    [
        (("store =", "stroe ="), "stroe", "did you mean store?"),
        (("id = 1\n", "id = 1\nfinalty = 3\n"), "chains[0].finalty", "did you mean finality?"),
        (("id = 1\n", "id = 1\nfees = { max_fee = 3 }\n"), "chains[0].fees.max_fee", "did you mean max_fee_per_gas?"),
        (("id = 1\n", "id = 1\ncolour = 3\n"), "chains[0].colour", "known here: id, endpoints"),
        (('"http://127.0.0.1:8545"', '{ url = "http://x", weight = 2 }'), "chains[0].endpoints[0].weight", "unknown"),
        (("chains = [1]", "chains = [1]\nwindows = 3"), "accounts[0].windows", "did you mean window?"),
        (("env =", "evn ="), "accounts[0].key.evn", "did you mean env?"),
        (('"sqlite:nonchalant.db"', '"mysql://host/database"'), "store", "sqlite:PATH"),
        (('"sqlite:nonchalant.db"', '"postgresql://u:hushhush@host/d?schema=Two"'), "store", "schema is one word"),
        (('"sqlite:nonchalant.db"', '"sqlite:n.db"\nlisten_dsn = "postgresql://host/d"'), "listen_dsn", "leave it out"),
        (('"sqlite:nonchalant.db"', '"sqlite:"'), "store", "sqlite:PATH"),
        (('"sqlite:nonchalant.db"', '"sqlite::memory:"'), "store", "name a file"),
        (('"sqlite:nonchalant.db"', "5"), "store", "expected text"),
        (('store = "sqlite:nonchalant.db"', ""), "store", 'add store = "sqlite:nonchalant.db"'),
        (("id = 1\n", ""), "chains[0].id", "missing"),
        (("id = 1\n", "id = true\n"), "chains[0].id", "whole number"),
        (("id = 1\n", "id = 0\n"), "chains[0].id", "whole number from 1"),
        (("id = 1\n", f"id = {2**63}\n"), "chains[0].id", "whole number from 1"),
        (("id = 1\n", 'id = 1\nfinality = "latest"\n'), "chains[0].finality", 'expected "tag" or a depth'),
        (("id = 1\n", "id = 1\nfinality = 0\n"), "chains[0].finality", "from 1"),
        (("id = 1\n", "id = 1\npoll_interval = 0\n"), "chains[0].poll_interval", "expected seconds"),
        (("id = 1\n", 'id = 1\npoll_interval = "1"\n'), "chains[0].poll_interval", "expected seconds"),
        (("id = 1\n", 'id = 1\ndata_fee = "arbitrum"\n'), "chains[0].data_fee", "none, op-stack"),
        (("id = 1\n", 'id = 1\nfees = { speed = "warp" }\n'), "chains[0].fees.speed", "slow, standard, fast"),
        (("id = 1\n", 'id = 1\nfees = { max_fee_per_gas = "5 dollars" }\n'), "fees.max_fee_per_gas", "unknown unit"),
        (("id = 1\n", "id = 1\nfees = { max_fee_per_gas = -1 }\n"), "fees.max_fee_per_gas", "expected an amount"),
        (("id = 1\n", "id = 1\nfees = { max_fee_per_gas = 1.5 }\n"), "fees.max_fee_per_gas", "expected an amount"),
        (
            ("id = 1\n", "id = 1\nfees = { min_priority_fee_per_gas = 9, max_fee_per_gas = 8 }\n"),
            "chains[0].fees.max_fee_per_gas",
            "raise it",
        ),
        (("id = 1\n", "id = 1\nfees = { bump_after = 0 }\n"), "chains[0].fees.bump_after", "seconds from 1"),
        (("id = 1\n", 'id = 1\nfees = { bump_after = "0 blocks" }\n'), "chains[0].fees.bump_after", '"5 blocks"'),
        (
            ("id = 1\n", "id = 1\nfees = { bump_after = { warp = 1 } }\n"),
            "fees.bump_after.warp",
            "slow, standard, fast",
        ),
        (("id = 1\n", "id = 1\nfees = { replacement_percent = -1 }\n"), "fees.replacement_percent", "from 0"),
        (("chains = [1]", "chains = [1]\nshared = 1"), "accounts[0].shared", "true or false"),
        (
            ("chains = [1]", "chains = [1]\nhealth = { movement_within = 5 }"),
            "health.movement_within",
            "0 for no limit",
        ),
        (("chains = [1]", "chains = [1]\nhealth = { movement_within = false }"), "health.movement_within", "seconds"),
        (("chains = [1]", "chains = [1]\nhealth = { max_resets = -1 }"), "accounts[0].health.max_resets", "from 0"),
        (("chains = [1]", "chains = [1]\nhealth = { balance = 1 }"), "health.balance", "did you mean min_balance?"),
        (("chains = [1]", 'chains = [1]\nmode = "eager"'), "accounts[0].mode", "pipelined, strict"),
        (
            ("chains = [1]", "chains = [1]\nfees = { speed = 1 }"),
            "accounts[0].fees.speed",
            "known here: max_fee_per_gas",
        ),
        (
            ("chains = [1]", "chains = [1]\nfees = { max_fee_per_gas = 0 }"),
            "accounts[0].fees.max_fee_per_gas",
            "raise it",
        ),
        (('["http://127.0.0.1:8545"]', "[]"), "chains[0].endpoints", "at least one"),
        (('["http://127.0.0.1:8545"]', '"http://x"'), "chains[0].endpoints", "expected a list"),
        (('"http://127.0.0.1:8545"', '"ws://x"'), "chains[0].endpoints[0]", "http://"),
        (('"http://127.0.0.1:8545"', '"http://x:99999"'), "chains[0].endpoints[0]", "http://"),
        (('"http://127.0.0.1:8545"', '"http:///x"'), "chains[0].endpoints[0]", "names a host"),
        (('"http://127.0.0.1:8545"', '"http://x y"'), "chains[0].endpoints[0]", "http://"),
        (('"http://127.0.0.1:8545"', '"http://x", "http://x"'), "chains[0].endpoints[1]", "twice"),
        (
            ('"http://127.0.0.1:8545"', '"http://x", { url = "http://y", name = "x" }'),
            "endpoints[1]",
            "x is there twice",
        ),
        (('"http://127.0.0.1:8545"', '{ name = "x" }'), "chains[0].endpoints[0].url", "missing"),
        (('"http://127.0.0.1:8545"', '{ url = "http://x", name = "\\n" }'), "chains[0].endpoints[0].name", "a name"),
        (("chains = [1]", "chains = [2]"), "accounts[0].chains", "no chain 2; add it to [[chains]]"),
        (("chains = [1]", "chains = [1, 1]"), "accounts[0].chains[1]", "twice"),
        (("chains = [1]", "chains = []"), "accounts[0].chains", "at least one"),
        (("chains = [1]", "chains = [1]\nwindow = 0"), "accounts[0].window", "from 1"),
        (('{ env = "RELAYER_KEY" }', '"0xabc"'), "accounts[0].key", "never stands in the settings"),
        (('{ env = "RELAYER_KEY" }', "5"), "accounts[0].key", "expected a table"),
        (('{ env = "RELAYER_KEY" }', "{}"), "accounts[0].key", "exactly one of env, file, keystore, mnemonic"),
        (('{ env = "RELAYER_KEY" }', '{ env = "A", file = "b" }'), "accounts[0].key", "exactly one"),
        (('{ env = "RELAYER_KEY" }', '{ keystore = "k" }'), "accounts[0].key.password", "missing"),
        (('{ env = "RELAYER_KEY" }', '{ keystore = "k", password = "p" }'), "accounts[0].key.password", "never stands"),
        (('{ env = "RELAYER_KEY" }', '{ keystore = "k", password = {} }'), "accounts[0].key.password", "env, file"),
        (('{ env = "RELAYER_KEY" }', '{ mnemonic = "test test" }'), "accounts[0].key.mnemonic", "never stands"),
        (
            ('{ env = "RELAYER_KEY" }', '{ mnemonic = { env = "A" }, path = "44/60" }'),
            "accounts[0].key.path",
            "derivation path",
        ),
        (('{ env = "RELAYER_KEY" }', '{ file = "a\\u0000b" }'), "accounts[0].key.file", "path of a file"),
        (('{ env = "RELAYER_KEY" }', '{ file = "~nobody-at-all/k" }'), "accounts[0].key.file", "home"),
        (("store =", 'auth = "none"\nstore ='), "auth", 'expected "keys"'),
        (("store =", "auth = true\nstore ="), "auth", 'expected "keys"'),
        (("store =", 'log_format = "xml"\nstore ='), "log_format", "human, json"),
        (("store =", 'listen = "8645"\nstore ='), "listen", "HOST:PORT"),
        (("store =", 'listen = "127.0.0.1:70000"\nstore ='), "listen", "HOST:PORT"),
        (("store =", "lease_seconds = 1\nstore ="), "lease_seconds", "from 2 to 300"),
        (("store =", 'attention_hook = "module.function"\nstore ='), "attention_hook", "package.module:function"),
        (("store =", "retention = 29\nstore ="), "retention", "days, a whole number from 30"),
        (("store =", "retention = 30.5\nstore ="), "retention", "days, a whole number from 30"),
        (("[[chains]]", "[chains]"), "chains", "expected a list"),
        (("store =", "accounts = [5]\nstore ="), "TOML", "accounts"),
    ],
)
def test_a_wrong_key_is_named_with_its_remedy(change: tuple[str, str], named: str, remedy: str) -> None:
    assert change[0] in SMALLEST
    message = refusal(SMALLEST.replace(*change, 1))
    assert named in message
    assert remedy in message


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "node.example", "[::]"])
def test_without_keys_only_loopback_is_listened_on(host: str) -> None:
    assert read(f'listen = "{host}:8645"\n' + SMALLEST).auth == "keys"
    message = refusal(f'auth = "off"\nlisten = "{host}:8645"\n' + SMALLEST)
    assert message.startswith("listen: ")
    assert "127.0.0.1" in message


def test_a_chain_or_key_named_twice_is_refused() -> None:
    chain = '[[chains]]\nid = 1\nendpoints = ["http://y"]\n'
    assert "chains[1]: 1 is there twice" in refusal(SMALLEST.replace("[[accounts]]", chain + "[[accounts]]"))
    account = '\n[[accounts]]\nchains = [1]\nkey = { env = "RELAYER_KEY" }\n'
    assert "accounts[0] has this key on chain 1 already" in refusal(SMALLEST + account)
    for key in ('{ mnemonic = { env = "A" } }', '{ keystore = "a", password = { env = "A" } }'):
        twice = SMALLEST.replace('{ env = "RELAYER_KEY" }', key)
        assert "already; keep one" in refusal(twice + account.replace('{ env = "RELAYER_KEY" }', key))


def test_a_misspelt_variable_is_refused_and_others_are_left_alone() -> None:
    assert "did you mean NONCHALANT_STORE?" in refusal(SMALLEST, NONCHALANT_STROE="sqlite:x")
    read(SMALLEST, NONCHALANT_URL="http://x", NONCHALANT_RELAYER_KEY="0x")
    assert "NONCHALANT_LISTEN: expected" in refusal(SMALLEST, NONCHALANT_LISTEN="x")


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "nonchalant.toml"
    with pytest.raises(BadSettings, match="nonchalant dev"):
        load_settings(missing, {})
    with pytest.raises(BadSettings, match="cannot read"):
        load_settings(tmp_path, {})
    missing.write_bytes(b"\xff")
    with pytest.raises(BadSettings, match="not UTF-8"):
        load_settings(missing, {})
    missing.write_text("store = [")
    with pytest.raises(BadSettings, match="not valid TOML"):
        load_settings(missing, {})


def test_paths_in_a_file_start_where_the_file_is(tmp_path: Path) -> None:
    file = tmp_path / "nonchalant.toml"
    file.write_text(SMALLEST)
    assert load_settings(file, {}).store == f"sqlite:{tmp_path}/nonchalant.db"


# Cheap, so many; with the profile of `make test-long` twenty times as many again.
often = settings(max_examples=20 * settings.default.max_examples)


@often
@given(
    st.sampled_from(
        ["store", "listen", "id", "endpoints", "chains", "key", "window", "finality", "fees", "poll_interval"]
    ),
    st.text(max_size=40),
)
def test_any_text_as_a_value_is_settings_or_a_named_error(key: str, text: str) -> None:
    lines = SMALLEST.splitlines()
    changed = "\n".join(f"{key} = {text}" if line.startswith(f"{key} =") else line for line in lines)
    with suppress(BadSettings):
        read(changed if changed != SMALLEST.strip() else f"{key} = {text}\n{SMALLEST}")


@often
@given(st.text(max_size=200), st.text(max_size=40).filter(lambda text: "\0" not in text))
def test_any_file_and_environment_give_settings_or_a_named_error(text: str, value: str) -> None:
    for environ in ({}, {"NONCHALANT_LISTEN": value}, {"NONCHALANT_STORE": value}, {"NONCHALANT_LEASE_SECONDS": value}):
        for body in (text, SMALLEST):
            with suppress(BadSettings):
                read(body, **environ)


def test_a_store_on_postgresql_is_taken_as_it_is_and_shown_without_its_password() -> None:
    found = read(SMALLEST.replace('"sqlite:nonchalant.db"', '"postgresql://u:hushhush@h/d?schema=two"'))
    assert found.store == "postgresql://u:hushhush@h/d?schema=two"
    assert found.store_name == "postgresql://u@h/d?schema=two"
    assert "hushhush" not in repr(found)


def test_no_error_repeats_the_password_of_a_store() -> None:
    assert "hushhush" not in refusal(
        SMALLEST.replace('"sqlite:nonchalant.db"', '"postgresql://u:hushhush@h/d?schema=A"')
    )
