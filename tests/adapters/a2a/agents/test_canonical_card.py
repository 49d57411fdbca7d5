"""Canonical form of agent cards. The official SDKs compute the same payloads: `tests/interop/test_signed_cards.py`."""

from typing import Any

import pytest

from babelgate.adapters.a2a.agents.canonical_card import (
    MAX_DEPTH,
    NotCanonical,
    candidate_forms,
    canonicalize,
    payload_of,
    signed_form,
)
from babelgate.adapters.a2a.agents.card import card_1_0
from babelgate.adapters.kit.server.caller import Authentication, Issuer
from babelgate.canonical import AgentInfo
from tests.adapters.a2a.schema import check

ISSUER = Issuer("corp", "https://login.example.com", "https://login.example.com/.well-known/openid-configuration")

ALL = Authentication(accepts_keys=True, issuers=(ISSUER,), scopes=("run",))


def nested(depth: int) -> Any:
    """Return an empty object inside of other objects. `depth` is the number of all objects, with the empty one."""
    value: Any = {}
    for _ in range(depth - 1):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "€"]}, '{"a":[true,null,"€"],"b":1}'),
        ({"\U0001f600": 1, "\ufb33": 2}, '{"\U0001f600":1,"\ufb33":2}'),  # by UTF-16 units
        ([1.0, 1e21, 1e-7, -0.0, 0.1], "[1,1e+21,1e-7,0,0.1]"),
        ("\u0007\n\u2028\\", '"\\u0007\\n\u2028\\\\"'),
    ],
)
def test_values_have_the_form_of_rfc_8785(value: Any, text: str) -> None:
    assert canonicalize(value).decode() == text


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**53, -(2**53), 10**400, "\ud800", {"\ud800": 1}, {1: 2}, nested(MAX_DEPTH + 1)],
)
def test_a_value_without_a_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonical):
        canonicalize(value)


def test_the_depth_of_a_card_is_bounded() -> None:
    assert canonicalize(nested(MAX_DEPTH))
    with pytest.raises(NotCanonical, match="deeper than 64 levels"):
        canonicalize(nested(100_000))


CASES: list[tuple[str, Any, Any, Any]] = [
    # member, value, value in the signed form, value in the payload; ... is absent
    ("documentationUrl", "", ..., ...),
    ("iconUrl", "https://x", "https://x", "https://x"),
    ("iconUrl", 7, ..., ...),
    ("x-unknown", {"a": 1}, ..., ...),
    ("url", "https://x", ..., ...),
    ("signatures", [{"protected": "x", "signature": "y"}], ..., ...),
    ("provider", {"url": "https://x", "organization": ""}, ..., ...),
    ("provider", {"url": "https://x", "organization": "X", "y": 1}, {"url": "https://x", "organization": "X"}, "same"),
    ("capabilities", {"streaming": False, "x": 1}, {"streaming": False}, "same"),
    ("capabilities", {}, {}, ...),
    ("capabilities", {"extensions": [{"uri": "u", "required": False}]}, {"extensions": [{"uri": "u"}]}, "same"),
    (
        "capabilities",
        {"extensions": [{"uri": "u", "required": True, "params": {"a": False, "b": "", "c": [None, []], "d": 0}}]},
        {"extensions": [{"uri": "u", "required": True, "params": {"a": False, "b": "", "c": [None, []], "d": 0}}]},
        {"extensions": [{"uri": "u", "required": True, "params": {"a": False, "d": 0}}]},
    ),
    ("capabilities", {"extensions": [{"uri": "u", "params": {"n": 2**60}}]}, {"extensions": []}, ...),
    (
        "securityRequirements",
        [{"schemes": {"bearer": {"list": []}}}, {"schemes": {"oidc": {"list": ["run"]}}}],
        [{"schemes": {"bearer": {"list": []}}}, {"schemes": {"oidc": {"list": ["run"]}}}],
        [{"schemes": {"oidc": {"list": ["run"]}}}],
    ),
    (
        "securitySchemes",
        {"m": {"mtlsSecurityScheme": {}}, "b": {"httpAuthSecurityScheme": {"scheme": "Bearer", "type": "http"}}},
        {"m": {"mtlsSecurityScheme": {}}, "b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        {"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
    ),
    ("skills", [{"id": "s", "tags": ["", "t"], "examples": []}, 7], [{"id": "s", "tags": ["t"]}], "same"),
    ("supportedInterfaces", [{"url": "u", "tenant": ""}], [{"url": "u"}], "same"),
]


@pytest.mark.parametrize(("member", "value", "signed", "payload"), CASES)
def test_the_payload_has_what_both_sdks_read(member: str, value: Any, signed: Any, payload: Any) -> None:
    form = signed_form({"name": "a", member: value})
    assert form == {"name": "a"} | ({} if signed is ... else {member: signed})
    payload = signed if payload == "same" else payload
    assert payload_of(form) == canonicalize({"name": "a"} | ({} if payload is ... else {member: payload}))


@pytest.mark.parametrize(
    "access", [Authentication(), Authentication(accepts_keys=True, issuers=(ISSUER,), scopes=("r",))]
)
def test_no_required_member_of_a_signed_card_is_empty(access: Authentication) -> None:
    bare = AgentInfo(name="a", version="", input_types=(), output_types=())
    form = check("card", "1.0", signed_form(card_1_0(bare, "https://x", access)))
    required = ("name", "description", "supportedInterfaces", "version", "capabilities", "defaultInputModes", "skills")
    assert all(form[name] for name in (*required, "defaultOutputModes"))
    assert all(form["skills"][0][name] for name in ("id", "name", "description", "tags"))


def test_candidates_leave_out_what_signers_leave_out() -> None:
    card: dict[str, Any] = {
        "name": "a",
        "iconUrl": "",
        "x": 1,
        "capabilities": {"extensions": [{"uri": "u", "required": False}]},
        "signatures": [{}],
    }
    with_default = {"extensions": [{"uri": "u", "required": False}]}
    without = {"extensions": [{"uri": "u"}]}
    payloads: list[dict[str, Any]] = [
        {"name": "a", "iconUrl": "", "x": 1, "capabilities": with_default},
        {"name": "a", "x": 1, "capabilities": with_default},
        {"name": "a", "x": 1, "capabilities": without},
        {"name": "a", "iconUrl": "", "capabilities": with_default},
        {"name": "a", "capabilities": with_default},
        {"name": "a", "capabilities": without},
    ]
    candidates = list(candidate_forms(card))
    assert [form for form, _ in candidates] == payloads
    assert [payload for _, payload in candidates] == [canonicalize(each) for each in payloads]


def test_a_card_without_any_canonical_form_has_no_candidate() -> None:
    cards: list[dict[str, Any]] = [{"name": 2**53}, {"x": nested(MAX_DEPTH)}]
    for card in cards:
        with pytest.raises(NotCanonical):
            list(candidate_forms(card))
    assert len(list(candidate_forms({"name": "a", "x": float("nan")}))) == 1
