"""Who may do what: every call, with every scope, on what is one's own and on what is not.

The table of calls is the service's own: one without a row here fails the first test.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nonchalant.access import LanePattern, Scope
from nonchalant.service.front import Route
from nonchalant.service.routes import ROUTES
from tests.lessons import lesson
from tests.service.conftest import OTHER, SENDER, Running
from tests.service.keyed import a_holder, bearer, hand_out, keyed

CHAIN = 31337
MINE = LanePattern(CHAIN, SENDER)

# Whoever is let in so far that his body is read is let in.
WRONG = {"no_such_field": 1}
HOLDER = {"holder": "0" * 32}


@dataclass(frozen=True)
class Case:
    """One call. `status`: what it is answered with by somebody who has the scope, whose tenant is `mine` and whose lane
    is `SENDER`; an admin is let in wherever it is `refused`."""

    what: str
    parts: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    body: Any = None
    status: int = 200
    admin: int | None = None  # None: as everybody
    shows: Callable[[Any], Any] | None = None
    seen: Any = None
    seen_by_admin: Any = None


@dataclass
class Place:
    """What there is: a transaction of one's own, one of another tenant, one in another lane."""

    service: Running
    mine: str = ""
    other_tenant: str = ""
    other_lane: str = ""
    key_id: str = ""

    async def furnish(self) -> None:
        every = {"lanes": (LanePattern(),)}
        holders = {
            "mine": (await a_holder(self.service, Scope.TX_WRITE, tenant="mine", **every), SENDER),
            "other_tenant": (await a_holder(self.service, Scope.TX_WRITE, tenant="theirs", **every), SENDER),
            "other_lane": (await a_holder(self.service, Scope.TX_WRITE, tenant="mine", **every), OTHER),
        }
        for name, (headers, sender) in holders.items():
            status, made, _ = await self.service.post(payment(sender), headers=headers)
            assert status == 202
            setattr(self, name, made["id"])
        self.key_id = (await hand_out(self.service, Scope.TX_READ))[0].id

    @property
    def all(self) -> list[str]:
        return sorted([self.mine, self.other_tenant, self.other_lane])


def payment(sender: str) -> dict[str, Any]:
    return {"chain_id": CHAIN, "from": sender, "to": OTHER, "value": 1}


Cases = Callable[[Place], list[Case]]


def on_transactions(status: int, body: Any = None) -> Cases:
    def cases(place: Place) -> list[Case]:
        return [
            Case("own", {"id": place.mine}, body=body, status=status),
            Case("another tenant's", {"id": place.other_tenant}, body=body, status=404, admin=status),
            Case("in another lane", {"id": place.other_lane}, body=body, status=404, admin=status),
            Case("nobody's", {"id": "tx_nope"}, body=body, status=404),
        ]

    return cases


def on_lanes(status: int, body: Any = None) -> Cases:
    def of(address: str, chain_id: str = str(CHAIN)) -> dict[str, str]:
        return {"chain_id": chain_id, "address": address, "nonce": "5"}

    return lambda _: [
        Case("own", of(SENDER), body=body, status=status),
        Case("another's", of(OTHER), body=body, status=404, admin=status),
        Case("nobody's", of("0x" + "12" * 20), body=body, status=404),
        Case("on another chain", of(SENDER, "1"), body=body, status=404),
    ]


def anywhere(status: int = 200, **fields: Any) -> Cases:
    return lambda _: [Case("any", status=status, **fields)]


def submissions(wrap: Callable[[dict[str, Any]], Any], own: int) -> Cases:
    return lambda _: [
        Case("own", body=wrap(payment(SENDER)), status=own),
        Case("another's account", body=wrap(payment(OTHER)), status=403, admin=own),
        Case("nobody's account", body=wrap(payment("0x" + "12" * 20)), status=403, admin=400),
    ]


def on_keys(status: int, body: Any = None) -> Cases:
    return lambda place: [
        Case("there", {"id": place.key_id}, body=body, status=status),
        Case("not there", {"id": "key_nope"}, body=body, status=404),
    ]


def transactions_listed(place: Place) -> list[Case]:
    def ids(page: Any) -> list[str]:
        return sorted(tx["id"] for tx in page["transactions"])

    return [
        Case("all", shows=ids, seen=[place.mine], seen_by_admin=place.all),
        Case("another lane's", query=f"?from={OTHER}", shows=ids, seen=[], seen_by_admin=[place.other_lane]),
        Case("by chain", query=f"?chain_id={CHAIN}", shows=ids, seen=[place.mine], seen_by_admin=place.all),
    ]


def lanes_listed(_: Place) -> list[Case]:
    def addresses(page: Any) -> list[str]:
        return sorted(lane["address"].lower() for lane in page["lanes"])

    return [Case("all", shows=addresses, seen=[SENDER], seen_by_admin=sorted([SENDER, OTHER]))]


def streams(place: Place) -> list[Case]:
    return [
        Case("all"),
        Case("own", query=f"?tx={place.mine}"),
        Case("another tenant's", query=f"?tx={place.other_tenant}", status=404, admin=200),
        Case("in another lane", query=f"?tx={place.other_lane}", status=404, admin=200),
        Case("own lane", query=f"?lane={CHAIN}:{SENDER}"),
        Case("another lane", query=f"?lane={CHAIN}:{OTHER}", status=404, admin=200),
    ]


def rpc(place: Place) -> list[Case]:
    def asked(method: str, *params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}

    def accounts(answer: Any) -> list[str]:
        return sorted(address.lower() for address in answer["result"])

    here = {"chain_id": str(CHAIN)}
    return [
        Case(
            "accounts",
            here,
            body=asked("eth_accounts"),
            shows=accounts,
            seen=[SENDER],
            seen_by_admin=sorted([SENDER, OTHER]),
        ),
        Case("another chain", {"chain_id": "1"}, body=asked("eth_accounts"), status=404),
    ]


TRANSACTIONS, LANES, WEBHOOK = "/v1/transactions", "/v1/lanes/{chain_id}/{address}", "/v1/webhooks/{id}"

ROWS: Mapping[tuple[str, str], Cases] = {
    ("POST", TRANSACTIONS): submissions(lambda body: body, 202),
    ("POST", f"{TRANSACTIONS}/batch"): submissions(lambda body: {"transactions": [payment(SENDER), body]}, 202),
    ("GET", TRANSACTIONS): transactions_listed,
    ("GET", f"{TRANSACTIONS}/{{id}}"): on_transactions(200),
    ("GET", f"{TRANSACTIONS}/{{id}}/events"): on_transactions(200),
    ("POST", f"{TRANSACTIONS}/{{id}}/bump"): on_transactions(202, {}),
    ("POST", f"{TRANSACTIONS}/{{id}}/replace"): on_transactions(202, {"to": OTHER, "value": 2}),
    ("POST", f"{TRANSACTIONS}/{{id}}/hold"): on_transactions(202, {}),
    ("POST", f"{TRANSACTIONS}/{{id}}/release"): on_transactions(202, {}),
    ("POST", f"{TRANSACTIONS}/{{id}}/cancel"): on_transactions(202, {}),
    ("GET", "/v1/lanes"): lanes_listed,
    ("GET", LANES): on_lanes(200),
    ("GET", f"{LANES}/events"): on_lanes(200),
    **{
        ("POST", f"{LANES}/{tool}"): on_lanes(400, WRONG)
        for tool in (
            *("pause", "drain", "resume", "sync", "fill", "reset", "cancel", "reservations"),
            *("reservations/{nonce}/used", "reservations/{nonce}/release"),
        )
    },
    ("GET", "/v1/events"): streams,
    ("POST", "/rpc/{chain_id}"): rpc,
    ("GET", "/v1/keys"): anywhere(),
    ("POST", "/v1/keys"): anywhere(201, body={"name": "another", "scopes": ["sign"]}),
    ("GET", "/v1/keys/{id}"): on_keys(200),
    ("POST", "/v1/keys/{id}/revoke"): on_keys(200, {}),
    ("GET", "/v1/audit"): anywhere(),
    # Only an admin gets so far as to learn that there is none, or that the body is wrong.
    ("GET", "/v1/webhooks"): anywhere(),
    ("POST", "/v1/webhooks"): anywhere(400, body=WRONG),
    ("GET", f"{WEBHOOK}"): anywhere(404),
    ("PATCH", f"{WEBHOOK}"): anywhere(404, body={"description": "x"}),
    ("DELETE", f"{WEBHOOK}"): anywhere(404),
    **{("POST", f"{WEBHOOK}/{verb}"): anywhere(404, body={}) for verb in ("enable", "disable", "rotate", "test")},
    ("POST", f"{WEBHOOK}/replay"): anywhere(404, body={"after": 0}),
    ("GET", f"{WEBHOOK}/deliveries"): anywhere(404),
    ("POST", f"{WEBHOOK}/deliveries/{{delivery_id}}/replay"): anywhere(404, body={}),
    # It tells of every lane.
    ("GET", "/metrics"): anywhere(403, admin=200),
    ("GET", "/livez"): anywhere(),
    ("GET", "/readyz"): anywhere(),
    ("GET", "/openapi.json"): anywhere(),
}

# What changes nothing, then what changes little, then what ends something.
LOOKING_FIRST = sorted(ROUTES, key=lambda route: (route.method != "GET", route.path.endswith("/cancel")))

# These write their own entry, in the commit of what they do.
AUDITED_BY_THEMSELVES = {("POST", "/v1/keys"), ("POST", "/v1/keys/{id}/revoke")}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with keyed(tmp_path) as service:
        place = Place(service)
        await place.furnish()
        yield place


async def ask(place: Place, route: Route, case: Case, headers: Mapping[str, str]) -> tuple[int, Any]:
    """The status, and what came as JSON; a stream is left at once."""
    path = route.path.format(
        **{"id": "x", "delivery_id": "x", "chain_id": "1", "address": "x", "nonce": "5"} | dict(case.parts)
    )
    options = {} if case.body is None else {"json": case.body}
    url = place.service.url + path + case.query
    async with place.service.session.request(route.method, url, headers=headers, **options) as answer:
        is_json = "json" in answer.headers["Content-Type"]
        return answer.status, json.loads(await answer.read()) if is_json else None


def cases_of(route: Route, place: Place) -> list[Case]:
    return ROWS[route.method, route.path](place)


def test_every_call_has_a_row_and_every_row_is_a_call() -> None:
    assert set(ROWS) == {(route.method, route.path) for route in ROUTES}


def test_every_deed_of_people_with_power_is_audited() -> None:
    powers = {Scope.LANE_ADMIN, Scope.ADMIN}
    for route in ROUTES:
        if route.scope in powers and route.method != "GET":
            assert (route.audited is None) == ((route.method, route.path) in AUDITED_BY_THEMSELVES), route.path


async def test_what_an_admin_does_with_somebody_s_transaction_is_audited_and_what_its_owner_does_is_not(
    place: Place,
) -> None:
    admin, owner = [
        await a_holder(place.service, scope, tenant="mine", lanes=(LanePattern(),))
        for scope in (Scope.ADMIN, Scope.TX_WRITE)
    ]
    for holder, tx in ((owner, place.mine), (admin, place.other_tenant)):
        status, *_ = await place.service.call("POST", f"/v1/transactions/{tx}/hold", headers=holder)
        assert status == 202
    written = await place.service.node.store.audit_after(0, limit=100)
    assert [(entry.action, entry.subject) for entry in written if entry.action.startswith("transaction.")] == [
        ("transaction.hold", place.other_tenant)
    ]


def test_what_is_secret_in_the_body_of_an_audited_call_is_not_written() -> None:
    for route in ROUTES:
        if route.audited is not None and route.takes is not None:
            named = {name for name in route.takes.__struct_fields__ if any(word in name for word in SECRETS)}
            assert named <= set(route.unwritten), route.path


SECRETS = ("holder", "secret", "password", "token", "private")


@lesson("tenants-apart")
@pytest.mark.parametrize("scope", list(Scope), ids=str)
async def test_the_matrix(place: Place, scope: Scope) -> None:
    headers = await a_holder(place.service, scope, tenant="mine", lanes=(MINE,))
    is_admin = scope is Scope.ADMIN
    wrong = []
    for route in LOOKING_FIRST:
        for case in cases_of(route, place):
            status, answer = await ask(place, route, case, headers)
            expected = case.status if not is_admin or case.admin is None else case.admin
            if route.scope is not None and route.scope is not scope and not is_admin:
                expected = 403
            told = f"{route.method} {route.path}, {case.what}: {status} instead of {expected}"
            if status != expected:
                wrong.append(f"{told} {answer}")
            elif status == 403:
                assert answer["code"] == "forbidden", told
            elif case.shows is not None:
                shown, seen = case.shows(answer), case.seen_by_admin if is_admin else case.seen
                if shown != seen:
                    wrong.append(f"{told}: {shown} instead of {seen}")
    assert wrong == []


@pytest.mark.parametrize("who", ["nobody", "a stranger", "revoked"])
async def test_without_a_key_that_can_be_used_nothing_is_open_but_the_probes(place: Place, who: str) -> None:
    key, written = await hand_out(place.service, *Scope)
    if who == "revoked":
        await place.service.node.store.revoke_key(key.id, deed())
    text = written.text if who == "revoked" else written.text[:-8] + "00000000"
    headers = {} if who == "nobody" else bearer(text)
    for route in ROUTES:
        for case in cases_of(route, place):
            status, answer = await ask(place, route, case, headers)
            if route.scope is None:
                assert status == 200, route.path
            else:
                assert (status, answer["code"]) == (401, "unauthorized"), route.path


def deed() -> Any:
    from nonchalant.audit import Deed
    from tests.service.keyed import OPERATOR

    return Deed(actor=OPERATOR, action="key.revoke", subject="x")


async def test_where_no_keys_are_asked_for_everybody_may_do_everything(tmp_path: Path) -> None:
    from tests.service.conftest import SETTINGS

    two = SETTINGS.replace('file = "words" }', 'file = "words" }, count = 2')
    async with keyed(tmp_path, two) as service:
        place = Place(service)
        await place.furnish()
        for route in LOOKING_FIRST:
            for case in cases_of(route, place):
                status, answer = await ask(place, route, case, {})
                assert status == (case.status if case.admin is None else case.admin), (route.path, case.what, answer)
