"""What people do with webhooks: make, change, rotate, try and replay them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from nonchalant.access import EVERY_LANE
from nonchalant.courier import Post, envelope
from nonchalant.errors import NotFound, RowMoved, TooManyWebhooks
from nonchalant.ports import Clock, Entropy, EventRange, WebhookStore
from nonchalant.targets import Targets
from nonchalant.values import replace
from nonchalant.webhooks import Delivery, DeliveryState, LiveSecret, Said, Webhook, new_secret, signed_headers
from nonchalant.wire_events import Subscription
from nonchalant.words import Millis

# Each has connections and a task of its own, on the node that delivers for it.
MOST_WEBHOOKS: Final = 100

# How often a change is tried again that somebody else's came before.
TRIES: Final = 5

TEST_KIND: Final = "webhook.test"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDesk:
    """`targets`: whom webhooks may reach. `changed` tells whoever delivers on this node."""

    store: WebhookStore
    clock: Clock
    entropy: Entropy
    targets: Targets
    make_post: Callable[[], Post]
    changed: Callable[[], None]

    async def add(self, wanted: Subscription, *, tenant: str | None, after: int | None) -> Webhook:
        """A new one; its secret is in it. `after` None: from now on."""
        assert wanted.url is not None
        position = (await self.store.event_range()).last if after is None else after
        made = Webhook(
            id=f"wh_{self.entropy.token()}",
            url=wanted.url,
            secrets=(LiveSecret(self._new_secret()),),
            kinds=wanted.kinds or (),
            lanes=wanted.lanes or EVERY_LANE,
            tenant=tenant,
            description=wanted.description or "",
            position=position,
        )
        if not await self.store.add_webhook(made, most=MOST_WEBHOOKS):
            raise TooManyWebhooks(f"there are {MOST_WEBHOOKS} webhooks, as many as there may be; remove one first")
        self.changed()
        return await self.find(made.id)

    async def all(self) -> Sequence[Webhook]:
        return await self.store.webhooks()

    async def find(self, webhook_id: str) -> Webhook:
        found = await self.store.webhook(webhook_id)
        if found is None:
            raise NotFound(f"there is no webhook {webhook_id[:100]!r}")
        return found

    async def change(self, webhook_id: str, wanted: Subscription) -> Webhook:
        def changed(webhook: Webhook) -> Webhook:
            return replace(
                webhook,
                url=webhook.url if wanted.url is None else wanted.url,
                kinds=webhook.kinds if wanted.kinds is None else wanted.kinds,
                lanes=webhook.lanes if wanted.lanes is None else wanted.lanes,
                description=webhook.description if wanted.description is None else wanted.description,
            )

        return await self._alter(webhook_id, changed)

    async def remove(self, webhook_id: str) -> None:
        """With what waits for it, and its log."""
        if not await self.store.remove_webhook(webhook_id):
            raise NotFound(f"there is no webhook {webhook_id[:100]!r}")
        self.changed()

    async def enable(self, webhook_id: str) -> Webhook:
        """It goes on where it stopped."""
        return await self._alter(webhook_id, lambda webhook: replace(webhook, disabled_at=None, disabled_why=None))

    async def disable(self, webhook_id: str, why: str) -> Webhook:
        return await self._alter(
            webhook_id,
            lambda webhook: replace(webhook, disabled_at=self.clock.now(), disabled_why=why or "somebody disabled it"),
        )

    async def rotate(self, webhook_id: str, seconds: float) -> tuple[Webhook, str]:
        """A new secret. The one before it signs beside it for so long; older ones end now."""
        secret = self._new_secret()
        ends_at = self.clock.now() + round(seconds * 1000)

        def rotated(webhook: Webhook) -> Webhook:
            newest = webhook.secrets[:1] if seconds else ()
            return replace(webhook, secrets=(LiveSecret(secret), *(replace(one, ends_at=ends_at) for one in newest)))

        return await self._alter(webhook_id, rotated), secret

    async def test(self, webhook_id: str) -> Said:
        """Send something now, and see what the receiver says. Nothing is tried again, and nothing is written down."""
        webhook = await self.find(webhook_id)
        now = self.clock.now()
        message_id = f"msg_test_{self.entropy.token()}"
        body = envelope(TEST_KIND, now, f'{{"webhook":"{webhook.id}"}}')
        post = self.make_post()
        try:
            return await post.post(webhook.url, signed_headers(webhook.live_secrets(now), message_id, now, body), body)
        finally:
            await post.close()

    # the log

    async def deliveries(
        self, webhook_id: str, *, state: DeliveryState | None, before: int | None, limit: int
    ) -> Sequence[Delivery]:
        return await self.store.deliveries(webhook_id, state=state, before=before, limit=limit)

    async def replay(self, webhook_id: str, after: int) -> Webhook:
        """Deliver everything after this position again."""
        if not await self.store.rewind_webhook(webhook_id, after):
            raise NotFound(f"there is no webhook {webhook_id[:100]!r}")
        self.changed()
        return await self.find(webhook_id)

    async def replay_one(self, webhook_id: str, delivery_id: str) -> Delivery:
        position = delivery_id.rpartition("_")[2]
        found = (
            await self.store.deliveries(webhook_id, position=int(position), limit=1)
            if position.isdecimal() and position.isascii() and len(position) < 19
            else ()
        )
        if not found or found[0].id != delivery_id or not await self.store.replay_delivery(webhook_id, int(position)):
            raise NotFound(f"there is no delivery {delivery_id[:100]!r}; the log keeps them for some days")
        self.changed()
        [again] = await self.store.deliveries(webhook_id, position=int(position), limit=1)
        return again

    async def kept(self) -> EventRange:
        return await self.store.event_range()

    async def position_since(self, since: Millis) -> int:
        """Before the first event of this time or later."""
        found = await self.store.position_since(since)
        return (await self.store.event_range()).last if found is None else found - 1

    def _new_secret(self) -> str:
        return new_secret(bytes.fromhex(self.entropy.token() + self.entropy.token()))

    async def _alter(self, webhook_id: str, change: Callable[[Webhook], Webhook]) -> Webhook:
        for last in (False,) * (TRIES - 1) + (True,):
            try:
                await self.store.alter_webhook(change(await self.find(webhook_id)))
                break
            except RowMoved:
                if last:
                    raise
        self.changed()
        return await self.find(webhook_id)
