"""What every clone is free of: pointers to places that only its authors have."""

import re
import subprocess

import pytest

from tests.docs.pages import ROOT

# Written in pieces, so that this file does not find itself.
FORBIDDEN = {
    "a folder beside the clone": re.compile(r"\.\./" + "shared|/work/" + "shared"),
    "notes that a clone does not have": re.compile(r"\bDES" + r"IGN\b(?:\.md|[ ,:)§])"),
    "a machine's own path": re.compile(r"/(?:work/" + "main|home/[a-z]+|Users/[a-z]+|root/)"),
    "a registry host": re.compile(
        "|".join(
            (r"registry\.npm" + r"js", r"files\.python" + "hosted", r"pypi\.(?:or" + "g|internal)", "--index" + "-url")
        )
    ),
    "a tool's own address": re.compile("127.0.0.1:" + r"48\d\d|localhost:" + r"48\d\d"),
}


def files() -> list[str]:
    """What a clone has or will have: tracked, or neither tracked nor ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    found = []
    for file in files():
        path = ROOT / file
        if path.is_file():
            text = path.read_text(errors="replace")
            found += [f"{file}: {hit[0]}" for hit in FORBIDDEN[what].finditer(text)]
    assert found == []
