"""The keyring: makes keys and revokes them."""

from __future__ import annotations

from typing import Final

from nonchalant import keys
from nonchalant.access import Scope
from nonchalant.audit import FIRST_START, Actor, Deed
from nonchalant.errors import CommitUnknown, NotFound, StoreUnavailable
from nonchalant.keys import Key, KeyId, KeyRequest, Written
from nonchalant.ports import Entropy, Store
from nonchalant.views import show_time

# A commit of unknown outcome is repeated with the same key: whichever one took effect, its holder can use it.
TRIES: Final = 5

FIRST: Final = KeyRequest(name="first admin", scopes=frozenset({Scope.ADMIN}))


class Keyring:
    def __init__(self, store: Store, entropy: Entropy) -> None:
        self._store = store
        self._entropy = entropy

    async def make(self, wanted: KeyRequest, actor: Actor) -> tuple[Key, Written]:
        """A new key. What is written of it is not kept: it is for its holder, now or never."""
        made = await self._add(wanted, actor, only_first=False)
        assert made is not None
        return made

    async def make_first(self) -> tuple[Key, Written] | None:
        """An admin's key, where there was never any; None: there was one, or another node is making it."""
        return await self._add(FIRST, Actor(id=FIRST_START), only_first=True)

    async def revoke(self, key_id: KeyId, actor: Actor) -> Key:
        """From now on nobody is let in by it, on any node. `NotFound` if there is none."""
        key = await self._store.revoke_key(key_id, Deed(actor=actor, action="key.revoke", subject=key_id))
        if key is None:
            raise NotFound(f"there is no key {key_id[:100]!r}; `nonchalant key list` shows them")
        return key

    async def _add(self, wanted: KeyRequest, actor: Actor, *, only_first: bool) -> tuple[Key, Written] | None:
        tokens = [self._entropy.token() for _ in range(3)]
        written = keys.write(tokens[0][-16:], tokens[1] + tokens[2])
        deed = Deed(actor=actor, action="key.create", subject=written.id, data=_parameters(wanted))
        trouble: CommitUnknown | StoreUnavailable = StoreUnavailable()
        for _ in range(TRIES):
            try:
                key = await self._store.add_key(written, wanted, deed, only_first=only_first)
            except CommitUnknown as error:
                trouble = error
            else:
                return None if key is None else (key, written)
        raise trouble


def _parameters(wanted: KeyRequest) -> dict[str, object]:
    return {
        "name": wanted.name,
        "tenant": wanted.tenant,
        "scopes": sorted(wanted.scopes),
        "lanes": [str(lane) for lane in wanted.lanes],
        "nonces": wanted.nonces,
        "fees": wanted.fees,
        "rate": wanted.rate,
        "expires_at": None if wanted.expires_at is None else show_time(wanted.expires_at),
    }
