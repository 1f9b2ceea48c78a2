"""Secrets come from the environment, or from files that nobody else can read."""

from pathlib import Path

import pytest

from nonchalant.errors import BadSettings
from nonchalant.secret import EnvSecret, FileSecret, read_private, resolve_secret


def test_a_secret_comes_from_the_environment_or_a_private_file(tmp_path: Path) -> None:
    assert resolve_secret(EnvSecret("KEY"), {"KEY": "0x1"}) == "0x1"
    file = tmp_path / "key"
    file.write_text("0x2\r\n")
    file.chmod(0o600)
    assert resolve_secret(FileSecret(file)) == "0x2"


def test_a_secret_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"accounts\[0\]\.key\.env: the environment variable KEY is not set"):
        resolve_secret(EnvSecret("KEY", "accounts[0].key.env"), {"KEY": ""})
    with pytest.raises(BadSettings, match="cannot read"):
        resolve_secret(FileSecret(tmp_path / "none", "here"))
    empty = tmp_path / "empty"
    empty.touch(mode=0o600)
    with pytest.raises(BadSettings, match="is empty"):
        resolve_secret(FileSecret(empty, "here"))
    empty.write_bytes(b"\xff")
    with pytest.raises(BadSettings, match="not UTF-8"):
        resolve_secret(FileSecret(empty, "here"))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o666])
def test_a_secret_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_text("secret")
    file.chmod(mode)
    with pytest.raises(BadSettings, match="chmod 600") as caught:
        read_private(file, "accounts[0].key.file")
    assert "secret" not in str(caught.value).replace(str(file), "")


@pytest.mark.parametrize("mode", [0o400, 0o600])
def test_a_secret_file_of_its_owner_alone_is_taken(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_text("secret")
    file.chmod(mode)
    assert read_private(file, "here") == "secret"
