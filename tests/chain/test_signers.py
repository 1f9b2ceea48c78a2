"""Keys: where they come from, what they sign, and that nobody sees them."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import traceback

import pytest
from coincurve import PublicKey
from eth_account import Account
from eth_account.hdaccount import key_from_seed, seed_from_mnemonic

from nonchalant.chain.evm.addresses import address_of
from nonchalant.errors import BadSettings, SignerFailed
from nonchalant.signers import from_keystore, from_mnemonic, from_private_key
from nonchalant.signers.local import WORTH_A_THREAD
from tests.anvil import ADDRESSES, KEYS, MNEMONIC, PATH

SECRET = KEYS[0][2:]
PASSWORD = "correct horse"
WHAT = "key.json"
LIGHT = {"kdf": "pbkdf2", "iterations": 10}


def everything_shown(problem: BaseException) -> str:
    texts = []
    seen: BaseException | None = problem
    while seen is not None:
        texts += [str(seen), repr(seen), *traceback.format_exception(seen)]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(texts)


@pytest.fixture
def keystore():
    return json.dumps(Account.encrypt(KEYS[0], PASSWORD, **LIGHT))


@pytest.mark.parametrize("text", [SECRET, "0x" + SECRET, "0x" + SECRET.upper(), f"  0x{SECRET}\n"])
def test_a_private_key_is_taken_with_and_without_prefix(text):
    assert from_private_key(text).address == ADDRESSES[0]


@pytest.mark.parametrize(
    "text",
    [
        *("", "0x", SECRET[:-1], SECRET[:-2], SECRET + "00", "zz" * 32, "correct horse battery staple", "٣" * 64),
        "00" * 32,
        "ff" * 32,
    ],
)
def test_what_is_no_key_is_refused_without_showing_it(text):
    with pytest.raises(BadSettings, match="64 hex digits") as caught:
        from_private_key(text)
    if len(text) > 2:
        assert text not in everything_shown(caught.value)


@pytest.mark.parametrize("count", [1, WORTH_A_THREAD, 3 * WORTH_A_THREAD])
async def test_signatures_are_the_accounts_own_in_order_and_deterministic(count):
    signer = from_private_key(SECRET)
    digests = [index.to_bytes(32, "big") for index in range(count)]
    signatures = await signer.sign(digests)
    for digest, signature in zip(digests, signatures, strict=True):
        assert len(signature) == 65
        assert signature[64] in (0, 1)
        key = PublicKey.from_signature_and_message(signature, digest, hasher=None)
        assert address_of(key.format(compressed=False)) == signer.address
    assert await signer.sign(digests) == signatures


async def test_signing_what_is_no_digest_fails_as_a_signer_does():
    with pytest.raises(SignerFailed):
        await from_private_key(SECRET).sign([b"short"])


def test_a_signer_shows_its_address_and_never_its_key():
    signer = from_private_key(SECRET)
    assert repr(signer) == str(signer) == f"LocalSigner({ADDRESSES[0]})"
    assert not hasattr(signer, "__dict__")
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="neither pickled nor copied"):
            duplicate(signer)


def test_a_keystore_opens_with_its_password(keystore):
    assert from_keystore(keystore, PASSWORD, WHAT).address == ADDRESSES[0]


def test_a_keystore_made_with_scrypt_opens():
    document = json.dumps(Account.encrypt(KEYS[1], PASSWORD, kdf="scrypt", iterations=2))
    assert from_keystore(document, PASSWORD, WHAT).address == ADDRESSES[1]


def test_a_wrong_password_is_said_and_not_shown(keystore):
    wrong = PASSWORD.upper()
    with pytest.raises(BadSettings, match="does not open with this password") as caught:
        from_keystore(keystore, wrong, WHAT)
    assert wrong not in everything_shown(caught.value)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "7", "{}", "not json", '{"version": 3}', '{"version": 3, "crypto": {}}', '{"version": 1, "crypto": {}}',
     '{"version": 3, "crypto": {"kdf": "argon2"}}', '{"version": 3, "crypto": null}', "[" * 5_000,
     '{"version": 3, "crypto": {"kdf": "scrypt", "kdfparams": {"n": "x"}}}'],
)  # fmt: skip
def test_what_is_no_keystore_is_refused(content):
    with pytest.raises(BadSettings, match="is not a keystore"):
        from_keystore(content, PASSWORD, WHAT)


def test_a_keystore_that_claims_another_address_is_refused(keystore):
    lying = json.dumps(json.loads(keystore) | {"address": ADDRESSES[1][2:]})
    with pytest.raises(BadSettings, match=ADDRESSES[0]):
        from_keystore(lying, PASSWORD, WHAT)


def test_a_mnemonic_gives_its_accounts_in_order():
    assert [signer.address for signer in from_mnemonic(MNEMONIC, PATH, 5)] == list(ADDRESSES)
    [one] = from_mnemonic(f"  {MNEMONIC.replace(' ', '  ')}\n", PATH, 1)
    assert one.address == ADDRESSES[0]


@pytest.mark.parametrize("path", [PATH, "m/0", "m/44'/60'/3'/1/2147483647", "m/2147483647'/7"])
def test_a_mnemonic_gives_what_other_wallets_derive_from_it(path):
    seed = seed_from_mnemonic(MNEMONIC, "")
    others = [Account.from_key(key_from_seed(seed, f"{path}/{index}")).address.lower() for index in range(20)]
    assert [signer.address for signer in from_mnemonic(MNEMONIC, path, 20)] == others


@pytest.mark.parametrize(
    "phrase", ["", "test", MNEMONIC.replace("junk", "test"), MNEMONIC + " junk", "zebra zzzz qqqq"]
)
def test_a_wrong_mnemonic_is_refused_without_showing_it(phrase):
    with pytest.raises(BadSettings, match="BIP-39") as caught:
        from_mnemonic(phrase, PATH, 1)
    assert "test test" not in everything_shown(caught.value)
    assert "zzzz" not in everything_shown(caught.value)


@pytest.mark.parametrize("path", ["", "m", "44'/60'", "m/x", "m/44'/", "m/-1", "m/2147483648", "m/٣"])
def test_a_wrong_derivation_path_is_refused(path):
    with pytest.raises(BadSettings, match="must look like m/44'/60'/0'/0"):
        from_mnemonic(MNEMONIC, path, 1)


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_a_senseless_count_is_refused(count):
    with pytest.raises(BadSettings, match="count"):
        from_mnemonic(MNEMONIC, PATH, count)


def test_importing_the_signers_does_not_import_eth_account():
    check = "import sys, nonchalant.signers; sys.exit('eth_account' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.parametrize(
    "opens",
    ["from_mnemonic('test ' * 11 + 'junk', \"m/44'/60'/0'/0\", 1)", "from_keystore('{}', 'x', 'key.json')"],
)
def test_opening_a_key_leaves_the_recursion_limit_alone(opens):
    """eth-account raises it for the whole process, and a deeply nested body would then crash it."""
    code = f"""
import contextlib, sys
from nonchalant.errors import BadSettings
from nonchalant.signers import from_keystore, from_mnemonic
before = sys.getrecursionlimit()
with contextlib.suppress(BadSettings):
    {opens}
assert "eth_account" in sys.modules
assert sys.getrecursionlimit() == before, sys.getrecursionlimit()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
