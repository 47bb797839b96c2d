"""The OpenAPI document of REST and the schema registry, made from their tables of endpoints."""

import re
from typing import Any, Final

from trioka import __version__

from ..process.routing import ANY, Endpoint
from ..registry.http import CONTENT_TYPE
from ..registry.http import ENDPOINTS as REGISTRY_ENDPOINTS
from .formats import FORMATS, V2_JSON, content_type
from .http import ENDPOINTS

# Names of the parameters of a path, by what stands before them.
PARAMETERS: Final = {
    "topics": "topic",
    "partitions": "partition",
    "consumers": "group",
    "instances": "instance",
    "subjects": "subject",
    "versions": "version",
    "ids": "id",
    "config": "subject",
    "mode": "subject",
}
RECORDS_QUERY: Final = {
    "offset": "earliest, latest, an offset, or @ and a time in milliseconds; default earliest",
    "count": "most records; default 100, at most 10000",
    "max_bytes": "most bytes of keys and values; default 1048576; one record comes always",
    "timeout": "how long to wait for a record, in milliseconds; default 0, at most 60000",
    "isolation": "committed, stable (read_committed) or linearizable; default committed",
    "format": f"one of {', '.join(FORMATS)}; default binary",
}
QUERIES: Final = {
    ("GET", "/topics/*/partitions/*/records"): RECORDS_QUERY,
    ("GET", "/topics/*/tail"): {
        "from": "earliest, latest, an offset, or @ and a time in milliseconds; default latest",
        "partition": "only this partition",
        "isolation": RECORDS_QUERY["isolation"],
        "format": RECORDS_QUERY["format"],
    },
    ("GET", "/consumers/*/instances/*/records"): {
        "timeout": "how long to wait for a record, in milliseconds; default 1000, at most 60000",
        "max_bytes": "most bytes of keys and values; default 1048576",
    },
}
ERROR: Final = {"$ref": "#/components/schemas/Error"}


def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for each in ENDPOINTS:
        _add(paths, each, "rest", [V2_JSON], [content_type(form) for form in FORMATS])
    for other in REGISTRY_ENDPOINTS:
        _add(paths, other, "registry", [CONTENT_TYPE], [CONTENT_TYPE])
    return {
        "openapi": "3.1.0",
        "info": {"title": "trioka gateway", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error_code", "message"],
                    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
                }
            },
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def _add(
    paths: dict[str, dict[str, Any]], found: Endpoint[Any], tag: str, results: list[str], bodies: list[str]
) -> None:
    path = template(found.path)
    is_tail, is_produce = path.endswith("/tail"), tag == "rest" and found.method == "POST" and found.path[0] == "topics"
    name = re.sub(r"\W+", "_", f"{found.method.lower()}{path}").strip("_")
    shown = ["text/event-stream"] if is_tail else bodies if path.endswith("/records") else results
    operation: dict[str, Any] = {
        "operationId": f"{tag}_{name}",
        "tags": [tag],
        "parameters": [
            {"name": each, "in": "path", "required": True, "schema": {"type": "string"}}
            for each in re.findall(r"{(\w+)}", path)
        ],
        "responses": {
            "2XX": {"description": "done", "content": {each: {} for each in shown}},
            "default": {"description": "refused, or failed", "content": {results[0]: {"schema": ERROR}}},
        },
    }
    for each, text in QUERIES.get((found.method, "/" + "/".join(found.path)), {}).items():
        parameter = {"name": each, "in": "query", "description": text, "schema": {"type": "string"}}
        operation["parameters"].append(parameter)
    if found.method in ("POST", "PUT"):
        taken = bodies if is_produce else results
        operation["requestBody"] = {"content": {each: {"schema": {"type": "object"}} for each in taken}}
    paths.setdefault(path, {})[found.method.lower()] = operation


def template(path: tuple[str, ...]) -> str:
    parts = []
    for index, part in enumerate(path):
        parts.append(f"{{{PARAMETERS[path[index - 1]]}}}" if part == ANY else part)
    return "/" + "/".join(parts)
