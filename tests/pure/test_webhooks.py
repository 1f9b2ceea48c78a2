"""How webhooks are signed, when they are tried again, and whom they may reach."""

import ipaddress
import json
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook as Stock

from nonchalant.errors import BadRequest
from nonchalant.targets import Targets, is_public, parse_url
from nonchalant.webhooks import (
    JITTER,
    SCHEDULE,
    Delivery,
    DeliveryState,
    LiveSecret,
    Said,
    Webhook,
    after,
    new_secret,
    signed_headers,
)
from tests.lessons import lesson

NOW = 1_700_000_000_123
DELIVERY = Delivery(webhook_id="wh_1", position=7, stream="tx_1", kind="tx.sent", body="{}")


@lesson("webhook-signatures")
def test_the_stock_library_believes_what_is_signed_here() -> None:
    now = round(datetime.now(UTC).timestamp() * 1000)
    secret, other = new_secret(b"\x01" * 32), new_secret(bytes(range(32)))
    body = '{"type":"tx.sent","data":{"text":"é"}}'
    headers = signed_headers([secret, other], "msg_1", now, body)
    for one in (secret, other):
        assert Stock(one).verify(body, headers) == json.loads(body)
    # One that is signed by only one of two is believed by that one alone.
    alone = signed_headers([secret], "msg_1", now, body)
    for wrong in ({"webhook-id": "msg_2"}, {"webhook-timestamp": str(now // 1000 - 1)}):
        with pytest.raises(Exception, match="signature"):
            Stock(secret).verify(body, alone | wrong)
    with pytest.raises(Exception, match="signature"):
        Stock(other).verify(body, alone)
    with pytest.raises(Exception, match="too old"):
        Stock(secret).verify(body, signed_headers([secret], "msg_1", now - 3_600_000, body))
    assert secret not in str(headers)


def test_a_signature_is_what_the_stock_library_makes() -> None:
    secret = new_secret(b"\x02" * 32)
    at = datetime.fromtimestamp(NOW // 1000, UTC)
    assert signed_headers([secret], "msg_1", NOW, "{}")["webhook-signature"] == Stock(secret).sign("msg_1", at, "{}")


def test_an_old_secret_signs_until_it_ends() -> None:
    hook = Webhook(id="wh_1", url="https://a.example", secrets=(LiveSecret("new"), LiveSecret("old", NOW)))
    assert hook.live_secrets(NOW - 1) == ["new", "old"]
    assert hook.live_secrets(NOW) == ["new"]


def test_what_was_taken_is_delivered() -> None:
    for status in (200, 201, 204, 299):
        ended = after(DELIVERY, Said(status=status), NOW, 0)
        assert (ended.state, ended.ended_at, ended.tries) == (DeliveryState.DELIVERED, NOW, 1)


@pytest.mark.parametrize("status", [None, 100, 301, 302, 400, 404, 429, 500, 503])
def test_anything_else_is_tried_again_by_the_schedule_and_then_given_up(status: int | None) -> None:
    waits, tried = [], DELIVERY
    while tried.state is DeliveryState.PENDING:
        tried = after(tried, Said(status=status, error="no"), NOW, 0)
        if tried.state is DeliveryState.PENDING:
            waits.append((tried.next_at - NOW) // 1000)
    assert waits == [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400]
    assert (tried.state, tried.tries, tried.ended_at, tried.error) == (DeliveryState.FAILED, 10, NOW, "no")


def test_what_failed_together_does_not_come_back_together() -> None:
    late = after(DELIVERY, Said(status=500), NOW, 1.0)
    assert late.next_at - NOW == SCHEDULE[1] * (1 + JITTER)


def test_a_receiver_may_ask_for_time_but_not_for_all_of_it() -> None:
    asked = after(DELIVERY, Said(status=429, retry_after=60), NOW, 0)
    assert asked.next_at - NOW == 60_000
    assert after(DELIVERY, Said(status=503, retry_after=1e9), NOW, 0).next_at - NOW == 3_600_000
    assert after(DELIVERY, Said(status=503, retry_after=1), NOW, 0).next_at - NOW == 5_000
    assert after(DELIVERY, Said(status=500, retry_after=60), NOW, 0).next_at - NOW == 5_000


def test_what_met_a_receiver_that_is_gone_still_waits() -> None:
    gone = after(DELIVERY, Said(status=410), NOW, 0)
    assert (gone.state, gone.tries, gone.next_at) == (DeliveryState.PENDING, 1, NOW)


@lesson("webhook-targets")
@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "100.100.100.200", "0.0.0.0", "0.1.2.3", "192.0.0.192", "192.0.2.1", "198.18.0.1"),
        *("198.51.100.7", "203.0.113.7", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *("168.63.129.16", "192.88.99.1"),
        *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "fe80::1"),
        *("fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "2001::1", "2002:7f00:1::"),
        *("2002:a00:1::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "5f00::1"),
    ],
)
def test_an_address_that_is_not_of_the_internet_is_refused(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "2606:4700::1111",
        "2a00:1450:4001::1",
        "::ffff:8.8.8.8",
        "2002:808:808::1",
        "64:ff9b::808:808",
    ],
)
def test_an_address_of_the_internet_is_not(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url", ["https://example.com", "https://example.com:8443/a?b=c", "https://8.8.8.8/x", "https://[2606:4700::1111]/"]
)
def test_a_url_that_may_be_delivered_to_is_taken_as_it_is(url: str) -> None:
    assert parse_url(url, Targets.PUBLIC) == url


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "//example.com", "https://", "https:///x", "ftp://example.com", "http://example.com"),
        *("https://user@example.com", "https://user:word@example.com", "https://example.com/#x", "https://a b.com"),
        *(
            "https://example.com\\@evil.com",
            "https://example.com/\n",
            "https://example.com:0/",
            "https://example.com:99999/",
        ),
        *("https://127.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[fe80::1%25eth0]/"),
        *(
            "https://localhost/",
            "https://LOCALHOST./",
            "https://a.localhost/",
            "https://db.internal/",
            "https://x.local",
        ),
        *(
            "https://169.254.169.254/latest",
            "https://100.100.100.200/",
            "https://" + "a" * 2_000 + ".com/",
            "https://[x]/",
        ),
        "https://exämple.com/",
    ],
)
def test_a_url_that_may_not_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match=r"^url: "):
        parse_url(url, Targets.PUBLIC)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080/hook", "http://localhost/", "https://10.0.0.1/", "http://receiver:80/"]
)
def test_ones_own_network_is_reached_where_the_settings_allow_it(url: str) -> None:
    assert parse_url(url, Targets.ANY) == url
    with pytest.raises(BadRequest):
        parse_url(url.replace("receiver", "localhost"), Targets.PUBLIC)
    with pytest.raises(BadRequest, match="user"):
        parse_url("http://user@localhost/", Targets.ANY)
