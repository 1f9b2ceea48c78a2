"""The OpenAPI document, written from the table of calls: complete enough to generate clients from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final

import msgspec

from nonchalant import errors
from nonchalant.errors import NonchalantError
from nonchalant.service import problems
from nonchalant.service.examples import EXAMPLES
from nonchalant.service.front import ADDRESS, TEXT, WHOLE, Parameter, Route
from nonchalant.service.http import JSON, PROBLEM_JSON
from nonchalant.service.routes import ROUTES
from nonchalant.views import Problem
from nonchalant.words import State

ABOUT: Final = """\
Hand over what should happen; Nonchalant decides nonce and price, signs, broadcasts, watches, repairs, and tells the \
truth about the outcome. Amounts are in wei. Errors are problem documents (RFC 9457); their `code` never changes its \
meaning. Unknown fields and parameters are refused."""

TAGS: Final = {
    "transactions": "What should happen, and what became of it.",
    "lanes": "One account on one chain each: how it stands, and how to steer it.",
    "events": "What happens, as it happens.",
    "webhooks": "Events that are delivered to a URL, signed.",
    "rpc": "What unchanged web3 clients talk to.",
    "keys": "Who may call, and what for.",
    "audit": "What was done with that.",
    "node": "The node itself.",
}

# What any call may be answered with; the last three where it has a body, the two after the first where it needs a key.
ALWAYS: Final = (400, 421, 431, 500, 503)
WITH_A_KEY: Final = (401, 403, 429)
WITH_A_BODY: Final = (408, 413, 415)

PATH_PARAMETERS: Final[Mapping[str, Parameter]] = {
    "chain_id": Parameter("chain_id", "the chain", {**WHOLE, "examples": [31337]}),
    "address": Parameter("address", "the account", ADDRESS),
    "nonce": Parameter("nonce", "the nonce", WHOLE),
    "id": Parameter("id", "its id", {**TEXT, "minLength": 1}),
    "delivery_id": Parameter("delivery_id", "the delivery's id", {**TEXT, "minLength": 1}),
}

# What comes with a problem, by its status.
PROBLEM_HEADERS: Final[Mapping[int, Parameter]] = {
    401: Parameter("WWW-Authenticate", "how to say who calls", TEXT, required=True),
    429: Parameter("Retry-After", "seconds to stay away", WHOLE, required=True),
    503: Parameter("Retry-After", "seconds to stay away", WHOLE, required=True),
}


@cache
def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    statuses = sorted({status for route in ROUTES for status in statuses_of(route)})
    tags = dict.fromkeys(_tag(route) for route in ROUTES)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Nonchalant",
            "version": version("nonchalant"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The node that this document is from."}],
        "tags": [{"name": tag} | ({"description": TAGS[tag]} if tag in TAGS else {}) for tag in tags],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "responses": {_problem_name(status): _problem(status) for status in statuses},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key. Where the setting `auth` is `off`, none is asked for.",
                }
            },
        },
    }


def statuses_of(route: Route) -> list[int]:
    """Of the problems that it may be answered with."""
    found = {*ALWAYS, *route.problems}
    found |= {*WITH_A_KEY} if route.scope is not None else set()
    return sorted(found | ({*WITH_A_BODY} if route.takes is not None else set()))


@cache
def field_words() -> Mapping[str, Mapping[str, str]]:
    """What the fields mean, by the name of the shape that has them."""
    return tomllib.loads((files("nonchalant.service") / "fields.toml").read_text())


def _operation(route: Route) -> dict[str, Any]:
    parts = [PATH_PARAMETERS.get(name, Parameter(name, "", TEXT)) for name in re.findall(r"{(\w+)}", route.path)]
    places: list[tuple[Sequence[Parameter], str]] = [(parts, "path"), (route.query, "query"), (route.headers, "header")]
    operation: dict[str, Any] = {
        "operationId": route.handle.__name__,
        "summary": route.does,
        "tags": [_tag(route)],
        "parameters": [_parameter(one, place) for many, place in places for one in many],
        "responses": {
            str(route.status): {
                "description": HTTPStatus(route.status).phrase,
                **_headers(route.answer_headers),
                "content": {
                    route.media_type: {} if route.answers is None else {"schema": _shape(route, route.answers)}
                },
            },
            **({"204": {"description": "There is nothing to answer."}} if route.or_nothing else {}),
            **{
                str(status): {"$ref": f"#/components/responses/{_problem_name(status)}"}
                for status in statuses_of(route)
            },
        },
        "security": [] if route.scope is None else [{"key": [route.scope.value]}],
    }
    if route.takes is not None:
        example = EXAMPLES.get(route.takes)
        operation["requestBody"] = {
            "required": not route.may_be_empty,
            "content": {
                JSON: {"schema": _shape(route, route.takes)} | ({} if example is None else {"example": example})
            },
        }
    return operation


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    shown = {
        "name": parameter.name,
        "in": place,
        "required": parameter.required or place == "path",
        "schema": dict(parameter.schema),
    }
    return shown | ({"description": parameter.about} if parameter.about else {})


def _headers(parameters: Sequence[Parameter]) -> dict[str, Any]:
    if not parameters:
        return {}
    return {
        "headers": {
            one.name: {"description": one.about, "required": one.required, "schema": dict(one.schema)}
            for one in parameters
        }
    }


def _schemas() -> dict[str, Any]:
    shapes: list[Any] = [Problem, State]
    for route in ROUTES:
        shapes += [kind for kind in (route.takes, route.answers) if kind is not None]
    _, schemas = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    for name, words in field_words().items():
        for field, about in words.items():
            # A name that nothing has is for the docs' test to find.
            if field in schemas.get(name, {}).get("properties", {}):
                schemas[name]["properties"][field]["description"] = about
    _say_items(schemas)
    return schemas


def _say_items(schema: Any) -> None:
    """A list of anything says so: generators take no list that does not say of what."""
    if isinstance(schema, dict):
        if schema.get("type") == "array":
            schema.setdefault("items", {})
        for part in schema.values():
            _say_items(part)
    elif isinstance(schema, list):
        for part in schema:
            _say_items(part)


def _problem(status: int) -> dict[str, Any]:
    """What a status means, with each code that it comes with."""
    codes = [f"`{code}`: {sentence}" for code, sentence in sorted(_codes(status))]
    return {
        "description": "\n\n".join([HTTPStatus(status).phrase, *codes]),
        **_headers([PROBLEM_HEADERS[status]] if status in PROBLEM_HEADERS else []),
        "content": {PROBLEM_JSON: {"schema": _reference(Problem)}},
    }


def _problem_name(status: int) -> str:
    return re.sub(r"\W", "", HTTPStatus(status).phrase.title())


def _codes(status: int) -> set[tuple[str, str]]:
    return {
        (kind.code, (kind.__doc__ or "").partition("\n")[0])
        for kind in _kinds(NonchalantError)
        if kind is not problems.HttpProblem and problems.status_of_kind(kind) == status and _is_told(kind, status)
    }


def _is_told(kind: type[NonchalantError], status: int) -> bool:
    """What is our own fault is not spelt out."""
    return status != 500 or kind is NonchalantError


def _kinds(kind: type[NonchalantError]) -> Iterator[type[NonchalantError]]:
    """It, and those below it, of our two modules of errors."""
    if kind.__module__ in (errors.__name__, problems.__name__):
        yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _tag(route: Route) -> str:
    first, _, rest = route.path.strip("/").partition("/")
    return rest.partition("/")[0] if first == "v1" else "rpc" if first == "rpc" else "node"


def _shape(route: Route, kind: type[msgspec.Struct]) -> dict[str, Any]:
    one = _reference(kind)
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]} if route.or_several else one


def _reference(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
