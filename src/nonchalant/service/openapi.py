"""The OpenAPI document, written from the table of calls."""

from __future__ import annotations

import re
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from nonchalant.model import State
from nonchalant.service.front import Parameter, Route
from nonchalant.service.http import JSON, PROBLEM_JSON
from nonchalant.service.routes import ROUTES
from nonchalant.views import Problem


def document() -> dict[str, Any]:
    types: list[Any] = [Problem, State]
    for route in ROUTES:
        types += [kind for kind in (route.takes, route.answers) if kind is not None]
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Nonchalant", "version": version("nonchalant")},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters = [_parameter(Parameter(name, "", {"type": "string"}), "path") for name in _variables(route.path)]
    parameters += [_parameter(parameter, "query") for parameter in route.query]
    parameters += [_parameter(parameter, "header") for parameter in route.headers]
    responses = {str(route.status): _content(route.answers, JSON, HTTPStatus(route.status).phrase)}
    for status in route.problems:
        responses[str(status)] = _content(Problem, PROBLEM_JSON, HTTPStatus(status).phrase)
    operation: dict[str, Any] = {
        "operationId": route.handle.__name__,
        "summary": route.does,
        "parameters": parameters,
        "responses": responses,
    }
    if route.takes is not None:
        operation["requestBody"] = {
            "required": not route.may_be_empty,
            **_content(route.takes, JSON, "What should happen."),
        }
    return operation


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    shown = {"name": parameter.name, "in": place, "required": place == "path", "schema": dict(parameter.schema)}
    return shown | ({"description": parameter.about} if parameter.about else {})


def _content(kind: type[msgspec.Struct], media_type: str, about: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"description": about, "content": {media_type: {"schema": schema}}}


def _variables(path: str) -> list[str]:
    return re.findall(r"{(\w+)}", path)
