"""Validation of OpenAPI 3.1 documents: `openapi-spec-validator` with compiled meta-schemas.

The package looks up dynamic references again and again, and descends ten vocabularies for each part of each schema.
That took 15 seconds for the documents of the gateway. Here these references are fixed, and the vocabularies are one
meta-schema with the same rules.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from openapi_schema_validator import OAS31Validator
from openapi_schema_validator._dialects import OAS31_BASE_DIALECT_ID
from openapi_schema_validator._specifications import REGISTRY as DIALECTS
from openapi_spec_validator import OpenAPIV31SpecValidator
from openapi_spec_validator.schemas import schema_v31  # pyright: ignore[reportUnknownVariableType]
from openapi_spec_validator.validation.keywords import OpenAPIV31SchemaValidator
from referencing import Registry, Resource


def _vocabularies(schema: Any, registry: Registry[Any]) -> Iterator[Any]:
    """Yield the meta-schemas that a meta-schema consists of."""
    yield schema
    resolver = registry.resolver_with_root(Resource.from_contents(schema))
    for part in schema.get("allOf", ()):
        yield from _vocabularies(resolver.lookup(part["$ref"]).contents, registry)


def _merge(schemas: Iterator[Any]) -> dict[str, Any]:
    """Return one meta-schema with the rules of all."""
    merged: dict[str, dict[str, Any]] = {"properties": {}, "$defs": {}}
    for schema in schemas:
        for member, each in merged.items():
            added = schema.get(member, {})
            assert not each.keys() & added.keys(), "two vocabularies define one keyword"
            each.update(added)
        allowed = {
            "$id",
            "$schema",
            "$vocabulary",
            "$dynamicAnchor",
            "title",
            "description",
            "$comment",
            "allOf",
            "type",
        }
        assert schema.keys() <= allowed | merged.keys(), schema.keys()
    return {"type": ["object", "boolean"], **_localize(merged, "#")}


def _localize(value: Any, meta: str) -> Any:
    """Return a part of a schema whose references lead into that schema. `meta` replaces the dynamic reference to the
    meta-schema."""
    if isinstance(value, list):
        return [_localize(each, meta) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    localized: dict[str, Any] = {}
    for name, each in cast("dict[str, Any]", value).items():
        if name == "$dynamicRef" and each == "#meta":
            localized["$ref"] = meta
        elif name == "$ref" and isinstance(each, str):
            localized[name] = f"#{each.partition('#')[2]}"
        else:
            localized[name] = _localize(each, meta)
    return localized


@cache
def _meta_validator() -> Any:
    merged = _merge(_vocabularies(OAS31Validator.META_SCHEMA, DIALECTS))
    return Draft202012Validator(merged, format_checker=OAS31Validator.FORMAT_CHECKER)


def _check_schema(schema: Any) -> None:
    """Raise an error for a schema that its meta-schema does not allow. Raises SchemaError."""
    for error in _meta_validator().iter_errors(schema):
        raise SchemaError.create_from(error)


class _SchemaValidator(OpenAPIV31SchemaValidator):
    def _get_schema_checker(self, schema: Any, schema_value: Any) -> Callable[[Any], None]:
        if self._get_schema_dialect_id(schema, schema_value) != OAS31_BASE_DIALECT_ID:
            return super()._get_schema_checker(schema, schema_value)
        return _check_schema


class OpenApiValidator(OpenAPIV31SpecValidator):
    """Validator of OpenAPI 3.1 documents."""

    schema_validator = Draft202012Validator(_localize(dict(cast("Any", schema_v31)), "#/$defs/schema"))
    keyword_validators = {**OpenAPIV31SpecValidator.keyword_validators, "schema": _SchemaValidator}
