"""Tests of tokens: which are accepted, why others are refused, and what their claims say about the caller."""

import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.gateway.http.tokens import MAX_TOKEN, find_claim
from babelgate.gateway.http.verifier import Verifier
from babelgate.gateway.settings.model import Settings
from tests.gateway.http.issuing import AUDIENCE, Issuing, bearer, private_key, public_key, sign
from tests.gateway.log_capture import capture_log

CORP: Final = Issuing()
OTHER: Final = Issuing("https://id.partner.example")


def verifier(**members: Any) -> Verifier:
    return Verifier(Settings.model_validate({"issuers": {"corp": CORP.inline(**members)}}))


async def principal_of(token: str, **members: Any) -> Principal:
    return await verifier(**members).verify(bearer(token))


async def refusal_of(token: str, **members: Any) -> str:
    with pytest.raises(FaultError) as raised:
        await principal_of(token, **members)
    assert raised.value.fault.code is FaultCode.UNAUTHENTICATED
    assert raised.value.fault.details == {"reason": "invalid_token"}
    return raised.value.fault.message.removeprefix("The token is not accepted: ")


# Accepted tokens


async def test_claims_of_a_token_become_the_principal() -> None:
    expires = int(time.time()) + 600
    token = CORP.token(exp=expires, groups=["dev", "ops"], scope="agents:run agents:read", jti="token-1")
    assert await principal_of(token, leeway=0) == Principal(
        subject="user:corp:alice",
        owner="corp:alice",
        groups=frozenset({"dev", "ops"}),
        scopes=frozenset({"agents:run", "agents:read"}),
        issuer="corp",
        credential_id="token-1",
        expires_at=expires,
    )


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt", "application/at+jwt", None])
async def test_token_types_for_access_are_accepted(kind: str | None) -> None:
    assert (await principal_of(CORP.token(headers={"typ": kind}))).owner == "corp:alice"


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
async def test_default_algorithms_are_accepted(algorithm: str) -> None:
    issuer = Issuing()
    issuer.keys = [public_key(algorithm)]
    accepted = Verifier(Settings.model_validate({"issuers": {"corp": issuer.inline()}}))
    assert (await accepted.verify(bearer(issuer.token(algorithm)))).issuer == "corp"


async def test_a_token_without_kid_needs_an_issuer_with_one_key() -> None:
    issuer, token = Issuing(), CORP.token(headers={"kid": None})
    assert (await principal_of(token)).owner == "corp:alice"
    issuer.keys = [public_key(), public_key(number=1)]
    ambiguous = Verifier(Settings.model_validate({"issuers": {"corp": issuer.inline()}}))
    with pytest.raises(FaultError, match="signature does not match"):
        await ambiguous.verify(bearer(token))


@pytest.mark.parametrize("audience", [AUDIENCE, f"{AUDIENCE}/", ["other", AUDIENCE]])
async def test_an_audience_matches_with_and_without_a_final_slash(audience: object) -> None:
    assert (await principal_of(CORP.token(aud=audience))).owner == "corp:alice"


async def test_an_expired_token_is_accepted_within_the_leeway() -> None:
    expired = int(time.time()) - 20
    principal = await principal_of(CORP.token(exp=expired))
    assert principal.expires_at == expired + 60
    assert await refusal_of(CORP.token(exp=expired), leeway=10) == "it has expired."


# Refused tokens


def _public_pem() -> bytes:
    public: Any = private_key("RS256").public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _claims(**more: Any) -> dict[str, Any]:
    return {"iss": CORP.url, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + 600, **more}


def _tampered() -> str:
    head, _, signature = CORP.token().split(".")
    return ".".join((head, CORP.token(sub="root").split(".")[1], signature))


SIGNATURE: Final = "its signature does not match."
ALGORITHM: Final = "its algorithm is not one of RS256, PS256, ES256, EdDSA."
ISSUER: Final = "its issuer is not trusted."
NO_TOKEN: Final = "it is not a JSON Web Token."
REFUSED: Final[dict[str, tuple[Callable[[], str], str]]] = {
    "no algorithm": (lambda: sign(_claims(), None, "none", {}), ALGORITHM),
    "HS256 with the public key": (lambda: sign(_claims(), _public_pem(), "HS256", {"kid": "RS256-0"}), ALGORITHM),
    "an algorithm that the issuer does not use": (
        lambda: sign(_claims(), private_key("RS256"), "RS512", {"kid": "RS256-0"}),
        ALGORITHM,
    ),
    "an algorithm that is a list": (
        lambda: sign(_claims(), private_key("RS256"), "RS256", {"alg": ["RS256"]}),
        ALGORITHM,
    ),
    "the key of another issuer": (lambda: CORP.token(number=1, headers={"kid": "RS256-0"}), SIGNATURE),
    "an unknown key id": (lambda: CORP.token(headers={"kid": "other"}), SIGNATURE),
    "a key id that is a number": (lambda: CORP.token(headers={"kid": 7}), SIGNATURE),
    "a key of another algorithm": (lambda: CORP.token("ES256", headers={"kid": "RS256-0"}), SIGNATURE),
    "changed claims": (_tampered, SIGNATURE),
    "no signature": (lambda: CORP.token().rpartition(".")[0] + ".", SIGNATURE),
    "another issuer": (OTHER.token, ISSUER),
    "issuer with a final slash": (lambda: CORP.token(iss=f"{CORP.url}/"), ISSUER),
    "a list of issuers": (lambda: CORP.token(iss=[CORP.url]), ISSUER),
    "no issuer": (lambda: CORP.token(iss=None), ISSUER),
    "another audience": (lambda: CORP.token(aud="https://other.example.com"), "it is not for this gateway."),
    "an audience that is a mapping": (lambda: CORP.token(aud={"a": AUDIENCE}), "it is not for this gateway."),
    "no audience": (lambda: CORP.token(aud=None), "it has no claim aud."),
    "no subject": (lambda: CORP.token(sub=None), "it has no claim sub."),
    "an empty subject": (lambda: CORP.token(sub=""), "it has an invalid claim sub."),
    "a subject with a line feed": (lambda: CORP.token(sub="a\nb"), "it has an invalid claim sub."),
    "a subject that is a number": (lambda: CORP.token(sub=7), "it has an invalid claim."),
    "no expiry": (lambda: CORP.token(exp=None), "it has no claim exp."),
    "an expiry that is a text": (lambda: CORP.token(exp="soon"), "it has an invalid claim."),
    "an infinite expiry": (lambda: CORP.token(exp=float("inf")), "it has an invalid claim."),
    "expired": (lambda: CORP.token(exp=int(time.time()) - 100), "it has expired."),
    "not yet valid": (lambda: CORP.token(nbf=int(time.time()) + 1000), "it is not valid yet."),
    "issued in the future": (lambda: CORP.token(iat=int(time.time()) + 1000), "it is not valid yet."),
    "a logout token": (lambda: CORP.token(headers={"typ": "logout+jwt"}), "it is not an access token."),
    "a proof of possession": (lambda: CORP.token(headers={"typ": "dpop+jwt"}), "it is not an access token."),
    "a type that is a number": (lambda: CORP.token(headers={"typ": 1}), "it is not an access token."),
    "a critical extension": (
        lambda: CORP.token(headers={"crit": ["exp"]}),
        "its header has an extension that is not supported.",
    ),
    "bound to its sender": (
        lambda: CORP.token(cnf={"jkt": "x"}),
        "it is bound to a key of its sender, which the gateway does not check.",
    ),
    "too long": (lambda: CORP.token(padding="x" * MAX_TOKEN), f"it is longer than {MAX_TOKEN} bytes."),
    "two dots": (lambda: "..", NO_TOKEN),
    "no base64": (lambda: "%.%.%", NO_TOKEN),
    "a signature that is no base64": (lambda: CORP.token().rpartition(".")[0] + ".%", NO_TOKEN),
    "a signature with padding": (lambda: f"{CORP.token()}==", NO_TOKEN),
    "a signature with other spare bits": (lambda: f"{CORP.token().rpartition('.')[0]}.YR", NO_TOKEN),
    "no JSON": (lambda: "YQ.YQ.YQ", NO_TOKEN),
    "no UTF-8": (lambda: "_w._w._w", NO_TOKEN),
    "a list": (lambda: "W10.W10.W10", NO_TOKEN),
    "claims that are a list": (lambda: sign([], private_key("RS256"), "RS256", {}), NO_TOKEN),
    "deeply nested": (lambda: f"{'W1tb' * 1500}.e30.e30", NO_TOKEN),
}
"""Tokens that are refused, with the reason."""


@pytest.mark.parametrize("case", REFUSED)
async def test_a_bad_token_is_refused_with_its_reason(case: str) -> None:
    token, reason = REFUSED[case]
    assert await refusal_of(token()) == reason


async def test_the_first_fault_of_a_token_is_reported() -> None:
    """Check the order: a token has every fault at first, and then one less each time."""
    claims: dict[str, Any] = {
        "iss": OTHER.url,
        "exp": int(time.time()) - 1000,
        "aud": "https://other.example.com",
        "sub": "",
        "cnf": {"jkt": "x"},
        "padding": "x" * MAX_TOKEN,
    }
    headers: dict[str, Any] = {"typ": "logout+jwt", "kid": "other"}
    state: dict[str, Any] = {"algorithm": "RS512", "number": 1}
    repairs: list[tuple[str, Callable[[], Any]]] = [
        (f"it is longer than {MAX_TOKEN} bytes.", lambda: claims.pop("padding")),
        (ISSUER, lambda: claims.update(iss=CORP.url)),
        (ALGORITHM, lambda: state.update(algorithm="RS256")),
        ("it is not an access token.", lambda: headers.update(typ="at+jwt")),
        (SIGNATURE, lambda: headers.update(kid="RS256-0")),
        (SIGNATURE, lambda: state.update(number=0)),
        ("it has expired.", lambda: claims.update(exp=int(time.time()) + 600)),
        ("it is not for this gateway.", lambda: claims.update(aud=AUDIENCE)),
        ("it is bound to a key of its sender, which the gateway does not check.", lambda: claims.pop("cnf")),
        ("it has an invalid claim sub.", lambda: claims.update(sub="alice")),
    ]
    for reason, repair in repairs:
        key = private_key("RS256", state["number"])
        assert await refusal_of(sign(claims, key, state["algorithm"], headers)) == reason
        repair()
    assert (await principal_of(sign(claims, private_key("RS256"), "RS256", headers))).owner == "corp:alice"


async def test_a_token_with_a_large_expiry_is_accepted() -> None:
    assert (await principal_of(CORP.token(exp=10**400))).owner == "corp:alice"


# Claims


@pytest.mark.parametrize(
    ("template", "claims", "owner"),
    [
        ("{org_id}", {"org_id": "acme"}, "acme"),
        ("{org_id}", {"org_id": 7}, "7"),
        ("acme:{realm.name}/{sub}", {"realm": {"name": "dev"}}, "acme:dev/alice"),
        ("{https://example.com/org}", {"https://example.com/org": "acme"}, "acme"),
    ],
)
async def test_the_owner_is_built_from_claims(template: str, claims: dict[str, Any], owner: str) -> None:
    assert (await principal_of(CORP.token(**claims), owner=template)).owner == owner


@pytest.mark.parametrize("value", [None, "", True, ["acme"], {"a": "b"}])
async def test_a_token_without_the_claim_of_the_owner_is_refused(value: object) -> None:
    assert await refusal_of(CORP.token(org_id=value), owner="{org_id}") == "it has no claim org_id."


@pytest.mark.parametrize("value", ["a\nb", "x" * 129])
async def test_an_unprintable_or_long_owner_is_refused(value: str) -> None:
    reason = await refusal_of(CORP.token(org_id=value), owner="{org_id}")
    assert reason == "its owner is not 1 to 128 printable characters."


@pytest.mark.parametrize(
    ("claims", "groups"),
    [
        ({"realm_access": {"roles": ["dev", 1, "", "a\n"]}}, ["dev"]),
        ({"realm_access": {"roles": "dev"}}, ["dev"]),
        ({"realm_access": "dev"}, []),
        ({"realm_access.roles": ["ops"]}, ["ops"]),
        ({}, []),
    ],
)
async def test_groups_come_from_the_configured_claim(claims: dict[str, Any], groups: list[str]) -> None:
    assert (await principal_of(CORP.token(**claims), groups="realm_access.roles")).groups == frozenset(groups)


@pytest.mark.parametrize(
    ("claims", "members", "scopes"),
    [
        ({"scope": "a b"}, {}, ["a", "b"]),
        ({"scp": "a b"}, {}, ["a", "b"]),
        ({"scp": ["a", "b"]}, {}, ["a", "b"]),
        ({"scope": "a", "permissions": ["c"]}, {"scopes": "permissions"}, ["c"]),
        ({}, {}, []),
    ],
)
async def test_scopes_come_from_scope_or_scp(
    claims: dict[str, Any], members: dict[str, Any], scopes: list[str]
) -> None:
    assert (await principal_of(CORP.token(**claims), **members)).scopes == frozenset(scopes)


async def test_a_group_overage_gives_no_groups_and_one_line() -> None:
    accepted = verifier()
    with capture_log() as logs:
        for number in range(2):
            token = CORP.token(_claim_names={"groups": "src1"}, number_of_test=number)
            assert (await accepted.verify(bearer(token))).groups == frozenset()
    assert logs.of("babelgate.credentials") == ["token has too many groups, none used issuer=corp claim=groups"]


def test_a_claim_with_dots_in_its_name_takes_precedence() -> None:
    assert find_claim({"a.b": 1, "a": {"b": 2}}, "a.b") == 1
    assert find_claim({"a": {"b": 2}}, "a.b") == 2
    assert find_claim({"a": 1}, "a.b") is None
