"""Signatures of agent cards: those of the gateway, and the check of cards of other servers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jwt.algorithms import get_default_algorithms

from babelgate.adapters.a2a.agents.canonical_card import canonicalize
from babelgate.adapters.a2a.agents.signatures import MAX_SIGNATURES, UnverifiedCard, sign_card, verify_card
from babelgate.adapters.kit.card_trust import KeysNotFetched
from babelgate.adapters.kit.jws import encode_base64url, encode_protected, signing_input
from babelgate.gateway.signing_keys import SigningKeys
from tests.adapters.a2a.far import card_1_0
from tests.gateway.card_keys import KeyPair, make_pair

CARD: dict[str, Any] = {**card_1_0("https://far.example/a"), "signatures": []}
OTHER_KEY = "none of its signatures is by a key in card.keys"
CHANGED = "its content does not match its signature"


class Pinned:
    """Keys that an operator trusts: `find` returns them, or raises KeysNotFetched if `fails`."""

    def __init__(self, *pairs: KeyPair, fails: bool = False) -> None:
        self._pairs = pairs
        self._fails = fails

    async def find(self, kid: str | None, algorithm: str) -> Sequence[Any]:
        if self._fails:
            raise KeysNotFetched("the keys in card.keys cannot be read now")
        keys = [pair.key for pair in self._pairs if pair.key.algorithm == algorithm and kid in (None, pair.key.kid)]
        return [key.private_key.public_key() for key in keys]


def signed(*pairs: KeyPair, **members: Any) -> dict[str, Any]:
    return sign_card({**CARD, **members}, SigningKeys([pair.key for pair in pairs], "https://evil.example/jwks"))


def raw_signature(pair: KeyPair, card: Any, **header: Any) -> dict[str, str]:
    """Sign a card without any change to it, and return the signature. `header` replaces members of the protected
    header; None omits a member."""
    values = {name: value for name, value in {**pair.header, **header}.items() if value is not None}
    protected = encode_protected(values)
    method: Any = get_default_algorithms()[pair.key.algorithm]
    signature = method.sign(signing_input(protected, canonicalize(card)), pair.key.private_key)
    return {"protected": protected, "signature": encode_base64url(signature)}


@pytest.fixture
def pair(tmp_path: Path) -> KeyPair:
    return make_pair(tmp_path)


async def test_any_pinned_key_verifies_a_card_of_the_gateway(tmp_path: Path, pair: KeyPair) -> None:
    other = make_pair(tmp_path, "other", "EdDSA")
    for pinned in (Pinned(pair), Pinned(other), Pinned(pair, other)):
        verified = await verify_card(signed(pair, other), pinned.find)
        assert {**verified, "signatures": []} == CARD


def test_without_keys_a_card_stays_as_it_is() -> None:
    assert sign_card(CARD, None) is CARD


async def test_foreign_signatures_are_replaced(pair: KeyPair) -> None:
    card = signed(pair, signatures=[{"protected": "x", "signature": "y"}])
    assert [each["protected"] for each in card["signatures"]] != ["x"]
    assert len(card["signatures"]) == 1


CHANGES: list[tuple[dict[str, Any], str | None]] = [
    ({"signatures": []}, "it has no signature"),
    ({"signatures": "x"}, "it has no signature"),
    ({"signatures": [7]}, "it has no signature"),
    ({"name": "other"}, CHANGED),
    ({"skills": []}, CHANGED),
    ({"supportedInterfaces": []}, CHANGED),
    ({"version": 2**60}, CHANGED),
    ({"x": {"y": float("nan")}}, None),
    ({"x": 1}, None),
    ({"signatures": [{"protected": "x", "signature": "y"}]}, OTHER_KEY),
    ({"signatures": [{"protected": 7}]}, OTHER_KEY),
    ({"signatures": [{}]}, OTHER_KEY),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
async def test_a_changed_card_is_not_verified(pair: KeyPair, change: dict[str, Any], reason: str | None) -> None:
    card = {**signed(pair), **change}
    if reason is None:  # what is added is not a member of 1.0, and is left out
        assert await verify_card(card, Pinned(pair).find) == await verify_card(signed(pair), Pinned(pair).find)
        return
    with pytest.raises(UnverifiedCard) as raised:
        await verify_card(card, Pinned(pair).find)
    assert str(raised.value) == reason


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({}, None),
        ({"kid": None}, None),
        ({"typ": None}, None),
        ({"jku": "https://evil.example"}, None),
        ({"kid": "other"}, OTHER_KEY),
        ({"kid": 7}, OTHER_KEY),
        ({"alg": "none"}, OTHER_KEY),
        ({"alg": "HS256"}, OTHER_KEY),
        ({"alg": "EdDSA"}, OTHER_KEY),
        ({"alg": None}, OTHER_KEY),
        ({"crit": ["exp"], "exp": 1}, OTHER_KEY),
        ({"b64": False}, OTHER_KEY),
        ({"kid": "x" * 5000}, OTHER_KEY),
    ],
)
async def test_the_header_selects_an_asymmetric_key(pair: KeyPair, header: dict[str, Any], reason: str | None) -> None:
    card = {name: value for name, value in CARD.items() if name != "signatures"}
    card["signatures"] = [raw_signature(pair, card, **header)]
    if reason is None:
        assert (await verify_card(card, Pinned(pair).find))["name"] == CARD["name"]
        return
    with pytest.raises(UnverifiedCard, match=reason):
        await verify_card(card, Pinned(pair).find)


async def test_a_symmetric_signature_by_the_public_key_is_refused(pair: KeyPair) -> None:
    protected = encode_protected({"alg": "HS256", "kid": pair.key.kid})
    card = {**CARD, "signatures": [{"protected": protected, "signature": encode_base64url(b"x" * 32)}]}
    with pytest.raises(UnverifiedCard, match=OTHER_KEY):
        await verify_card(card, Pinned(pair).find)


async def test_only_the_first_signatures_are_checked(pair: KeyPair) -> None:
    card = signed(pair)
    card["signatures"] = [{"protected": "x"}] * (MAX_SIGNATURES - 1) + card["signatures"]
    assert await verify_card(card, Pinned(pair).find)
    card["signatures"] = [{"protected": "x"}, *card["signatures"]]
    with pytest.raises(UnverifiedCard):
        await verify_card(card, Pinned(pair).find)


async def test_keys_that_cannot_be_fetched_are_the_reason(pair: KeyPair) -> None:
    with pytest.raises(UnverifiedCard, match="cannot be read now"):
        await verify_card(signed(pair), Pinned(fails=True).find)


async def test_members_that_no_signature_covers_are_left_out(pair: KeyPair) -> None:
    card = {**signed(pair), "url": "http://evil.example", "protocolVersion": "0.3", "x": 1}
    assert not {"url", "protocolVersion", "x", "signatures"} & (await verify_card(card, Pinned(pair).find)).keys()


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256"])
async def test_a_malformed_signature_is_refused(tmp_path: Path, algorithm: str) -> None:
    pair = make_pair(tmp_path, algorithm=algorithm)
    card = signed(pair)
    values = [encode_base64url(b"x" * length) for length in (0, 1, 63, 64, 65, 256, 600)]
    for value in (*values, "=", "€", "a", None, 7, ["x"], "x" * 100_000):
        card["signatures"] = [{**card["signatures"][0], "signature": value}]
        with pytest.raises(UnverifiedCard, match=CHANGED):
            await verify_card(card, Pinned(pair).find)
