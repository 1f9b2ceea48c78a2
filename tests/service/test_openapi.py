"""The OpenAPI document: valid, and complete enough to generate clients from."""

import json
import re
from http import HTTPStatus
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from docs import inventory
from nonchalant.bodies import decode
from nonchalant.service.examples import EXAMPLES
from nonchalant.service.openapi import document
from nonchalant.service.routes import ROUTES
from tests.service.conftest import OTHER, SENDER, Running

DOCUMENT: dict[str, Any] = json.loads(json.dumps(document()))
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    (method.upper(), path): operation for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
}


def test_the_document_is_valid_openapi() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()


async def test_it_is_served_as_it_is(service: Running) -> None:
    status, served, headers = await service.get("/openapi.json")
    assert (status, headers["Content-Type"], served) == (200, "application/json", DOCUMENT)


def test_every_call_is_in_it_once_under_a_name_of_its_own() -> None:
    assert set(OPERATIONS) == {(route.method, route.path) for route in ROUTES}
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names) == len(ROUTES)
    tags = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
    assert {tag for operation in OPERATIONS.values() for tag in operation["tags"]} == set(tags)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_call_says_all_that_it_takes_and_answers(route: Any) -> None:
    operation = OPERATIONS[route.method, route.path]
    given = {(one["name"], one["in"]) for one in operation["parameters"]}
    assert {name for name, place in given if place == "path"} == set(re.findall(r"{(\w+)}", route.path))
    assert all(one["description"] and one["schema"] for one in operation["parameters"])
    assert operation["summary"].endswith(".")
    assert ("requestBody" in operation) == (route.takes is not None)
    answered = set(operation["responses"])
    assert {str(route.status), "400", "421", "431", "500", "503"} <= answered
    assert not answered & {"408", "413", "415"} or route.takes is not None
    assert ("401" in answered) == ("403" in answered) == bool(operation["security"]) == (route.scope is not None)
    if route.scope is not None:
        assert operation["security"] == [{"key": [route.scope.value]}]


def test_every_answer_has_a_shape() -> None:
    for (_, path), operation in OPERATIONS.items():
        success = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
        [(media_type, content)] = success["content"].items()
        assert path == "/openapi.json" or media_type != "application/json" or "schema" in content, path


def test_every_problem_is_a_problem_document_with_its_codes_and_headers() -> None:
    for name, answer in DOCUMENT["components"]["responses"].items():
        assert answer["content"] == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        if name in ("TooManyRequests", "ServiceUnavailable"):
            assert answer["headers"]["Retry-After"]["required"]
    told = {
        (HTTPStatus(int(status)).value, code)
        for operation in OPERATIONS.values()
        for status, answer in operation["responses"].items()
        if "$ref" in answer
        for code in re.findall(r"`(\w+)`:", _follow(answer["$ref"])["description"])
    }
    # 405 comes where there is no such call.
    existing = {
        (one.status, one.code)
        for one in inventory.error_tree()
        if (one.http or one.status != 500 or one.code == "internal") and one.status != 405
    }
    assert told == existing


def test_every_field_is_explained() -> None:
    silent = {
        (name, field)
        for name, schema in SCHEMAS.items()
        for field, words in schema.get("properties", {}).items()
        if not words.get("description")
    }
    assert silent == set()


def test_every_shape_that_is_named_is_there() -> None:
    for name in re.findall(r'"#/components/(\w+)/(\w+)"', json.dumps(DOCUMENT)):
        assert name[1] in DOCUMENT["components"][name[0]]


@pytest.mark.parametrize(
    "kind", dict.fromkeys(route.takes for route in ROUTES if route.takes), ids=lambda kind: kind.__name__
)
def test_every_body_has_an_example_that_fits_it(kind: Any) -> None:
    decode(json.dumps(EXAMPLES[kind]).encode(), kind)
    jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{kind.__name__}", "components": {"schemas": SCHEMAS}}
    ).validate(EXAMPLES[kind])


async def test_the_headers_of_an_acceptance_are_those_that_are_told(service: Running) -> None:
    told = OPERATIONS["POST", "/v1/transactions"]["responses"]["202"]["headers"]
    body = {"chain_id": 31337, "from": SENDER, "to": OTHER}
    for replayed in (False, True):
        status, _, headers = await service.post(body, headers={"Idempotency-Key": "k"})
        assert (status, "Idempotency-Replayed" in headers) == (202, replayed)
        assert {name for name, header in told.items() if header["required"]} <= set(headers)


def _follow(reference: str) -> Any:
    found: Any = DOCUMENT
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found
