"""Probes that test interfaces, versions and security in the agent card of A2A 1.0."""

import json
from typing import Any, Final
from urllib.parse import urlsplit

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, message
from babelgate.conformance.protocols.a2a.probes.card import card_of
from babelgate.conformance.protocols.a2a.v1.opening import VERSION
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_list, as_object, dig

probes: Final = Probes[A2aTarget]()


def interfaces_of(ctx: Ctx) -> list[Any]:
    return as_list(dig(card_of(ctx), "supportedInterfaces"))


@probes.add
async def card_urls_are_absolute(ctx: Ctx) -> None:
    for each in interfaces_of(ctx):
        if dig(each, "protocolBinding") in ("JSONRPC", "HTTP+JSON"):
            parts = urlsplit(str(dig(each, "url")))
            is_right = parts.scheme in ("http", "https") and bool(parts.netloc)
            check(is_right, "an absolute http or https URL", dig(each, "url"), ctx.target.found.exchange)


@probes.add
async def card_bindings_are_known_or_uris(ctx: Ctx) -> None:
    for each in interfaces_of(ctx):
        name = str(dig(each, "protocolBinding"))
        is_right = name in ("JSONRPC", "GRPC", "HTTP+JSON") or ":" in name
        check(is_right, "JSONRPC, GRPC, HTTP+JSON, or the URI of a binding", name, ctx.target.found.exchange)


@probes.add
async def card_interfaces_differ(ctx: Ctx) -> None:
    faces = [json.dumps(each, sort_keys=True) for each in interfaces_of(ctx)]
    check(len(faces) == len(set(faces)), "no interface twice", interfaces_of(ctx), ctx.target.found.exchange)


@probes.add
async def card_versions_are_major_and_minor(ctx: Ctx) -> None:
    for each in interfaces_of(ctx):
        version = str(dig(each, "protocolVersion"))
        check(version.count(".") == 1, "a version of major and minor number", version, ctx.target.found.exchange)


@probes.add
async def card_requirements_name_schemes(ctx: Ctx) -> None:
    schemes = as_object(dig(card_of(ctx), "securitySchemes")) or {}
    skills = as_list(dig(ctx.target.card, "skills"))
    requirements = [*as_list(dig(ctx.target.card, "securityRequirements"))]
    requirements += [each for skill in skills for each in as_list(dig(skill, "securityRequirements"))]
    for each in requirements:
        for name in as_object(dig(each, "schemes")) or {}:
            check(name in schemes, f"a scheme {name} in securitySchemes", list(schemes), ctx.target.found.exchange)


@probes.add
async def every_interface_answers(ctx: Ctx) -> None:
    card_of(ctx)
    for binding in VERSION.every_binding(ctx.wire, ctx.target.found):
        reply = await binding.call("SendMessage", {"message": message(ctx.triggers["plain"].text)})
        check(not reply.reason, f"an answer of the interface {binding.url}", reply.reason, reply.exchange)
