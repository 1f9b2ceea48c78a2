"""The schema of either store, for whoever has only its address: the command line and `doctor`."""

from __future__ import annotations

import asyncio

from nonchalant.installation import Installation
from nonchalant.ports import Entropy
from nonchalant.store import migrations, postgres_schema
from nonchalant.store.migrations import Status


def status(url: str) -> Status:
    """What is there, without changing it."""
    if Installation.is_meant_by(url):
        return asyncio.run(postgres_schema.status(Installation.parse(url)))
    return migrations.status(url)


def migrate(url: str, entropy: Entropy) -> Status:
    """Bring the store to the newest version, making it if it is missing."""
    if Installation.is_meant_by(url):
        return asyncio.run(postgres_schema.migrate(Installation.parse(url), entropy.token()))
    return migrations.migrate(url)
