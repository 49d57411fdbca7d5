"""Private keys in PEM files, their public key set, and the cards of a gateway that signs with them."""

import json
import re
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from jwt import PyJWK
from jwt.algorithms import get_default_algorithms

from babelgate.adapters.kit.jws import signing_input
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.signing_keys import SigningKeyError, SigningKeys, read_signing_key, thumbprint
from tests.gateway.card_keys import make_pair, make_private_key, to_pem
from tests.gateway.log_capture import capture_log
from tests.running import Running, running

PUBLIC = "https://agents.example.com"
CARD = "/a2a/echo/.well-known/agent-card.json"
V1 = {"A2A-Version": "1.0"}
RFC_7638 = {
    "kty": "RSA",
    "n": (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3okn"
        "jhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qM"
        "QvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJz"
        "KnqDKgw"
    ),
    "e": "AQAB",
    "alg": "RS256",
    "kid": "2011-04-29",
}


def test_the_key_id_is_the_thumbprint_of_rfc_7638() -> None:
    assert thumbprint(RFC_7638) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256"])
def test_the_public_key_verifies_repeatable_signatures(tmp_path: Path, algorithm: str) -> None:
    pair = make_pair(tmp_path, algorithm=algorithm)
    first, second = (SigningKeys([read_signing_key(pair.file)], f"{PUBLIC}/jwks") for _ in range(2))
    (signature,) = first.sign(b"payload")
    assert second.sign(b"payload") == [signature]
    (key,) = first.jwks["keys"]
    assert (key["use"], key["alg"], key["kid"]) == ("sig", algorithm, pair.key.kid)
    assert not {"d", "p", "q", "dp", "dq", "qi"} & key.keys()
    content, method = urlsafe_b64decode(signature["signature"] + "=="), get_default_algorithms()[algorithm]
    assert method.verify(signing_input(signature["protected"], b"payload"), PyJWK(key).key, content)
    header = json.loads(urlsafe_b64decode(signature["protected"] + "=="))
    assert header == {"alg": algorithm, "typ": "JOSE", "kid": pair.key.kid, "jku": f"{PUBLIC}/jwks"}
    assert "private" not in repr(pair.key).lower()


def test_a_document_is_signed_once_and_the_number_is_bounded(tmp_path: Path) -> None:
    keys = SigningKeys([make_pair(tmp_path).key], None)
    calls: list[int] = []

    def find(number: int) -> None:
        keys.find_signed(bytes([number % 256, number // 256]), lambda: {"n": calls.append(number)})

    for number in (*range(1025), 1024, 1, 0):
        find(number)
    assert calls == [*range(1025), 0]


def wrong_files() -> dict[str, tuple[bytes | None, str]]:
    pem = to_pem(make_private_key("ES256"))
    public = b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n"
    public += b"-----END PUBLIC KEY-----\n"
    return {
        "missing": (None, "the file cannot be read: No such file or directory"),
        "empty": (b"", "the file is not PEM: expected -----BEGIN PRIVATE KEY-----"),
        "der": (b"\x30\x81\x87", "the file is not PEM: expected -----BEGIN PRIVATE KEY-----"),
        "cut": (pem[:80], "the file has no private key in PEM that can be read"),
        "public": (public, "the file has a public key, and a private key is needed"),
        "encrypted": (
            to_pem(make_private_key("ES256"), BestAvailableEncryption(b"secret")),
            "the key is encrypted with a password: store it without one",
        ),
        "p384": (
            to_pem(ec.generate_private_key(ec.SECP384R1())),
            "the curve secp384r1 is not supported: take a P-256 key",
        ),
        "rsa1024": (
            to_pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)),
            "the RSA key has 1024 bits, and 2048 or more are needed: take a P-256 key",
        ),
        "ed448": (
            to_pem(ed448.Ed448PrivateKey.generate()),
            "keys of this kind are not supported: take a P-256, Ed25519 or RSA key",
        ),
    }


@pytest.mark.parametrize("name", wrong_files())
def test_the_reason_for_a_wrong_file_is_exact(tmp_path: Path, name: str) -> None:
    content, reason = wrong_files()[name]
    file = tmp_path / "key.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SigningKeyError, match=f"^{re.escape(reason)}$"):
        read_signing_key(file)


# The gateway


async def reload(gateway: Running, **settings: Any) -> Any:
    values = {"database": gateway.settings.database, "public_url": PUBLIC, **settings}
    return await gateway.generations.apply(Settings.model_validate(values))


async def test_only_the_card_of_1_0_is_signed(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    async with running(tmp_path, signing={"keys": [str(pair.file)]}, public_url=PUBLIC) as gateway:
        for path in (CARD, "/.well-known/agent-card.json?assistant_id=echo", f"{CARD}?A2A-Version=1.0"):
            signed = await gateway.http.get(path, headers=V1)
            assert len(signed.json()["signatures"]) == 1
            again = await gateway.http.get(path, headers={**V1, "If-None-Match": signed.headers["etag"]})
            assert again.status_code == 304
        for path, headers in ((CARD, {}), (CARD, {"A2A-Version": "0.3"}), ("/a2a/echo/.well-known/agent.json", {})):
            assert "signatures" not in (await gateway.http.get(path, headers=headers)).json()
        keys = await gateway.http.get("/agent/echo/.well-known/jwks.json")
        assert (keys.json(), keys.headers["cache-control"]) == ({"keys": [pair.key.jwk]}, "public, max-age=3600")


async def test_a_reload_reads_the_keys_again(tmp_path: Path) -> None:
    pair, signing = make_pair(tmp_path), {"keys": [str(tmp_path / "key.pem")]}
    async with running(tmp_path, signing=signing, public_url=PUBLIC) as gateway:
        before = await gateway.http.get(CARD, headers=V1)
        new = make_pair(tmp_path)
        assert new.key.kid != pair.key.kid
        assert (await reload(gateway, signing=signing)).is_ok
        after = await gateway.http.get(CARD, headers=V1)
        assert before.headers["etag"] != after.headers["etag"]
        assert (await gateway.http.get("/.well-known/jwks.json")).json() == {"keys": [new.key.jwk]}
        new.file.write_text("no key")
        report = await reload(gateway, signing=signing)
        assert report.mistakes == (f"signing.keys.0: {wrong_files()['empty'][1]}",)
        assert (await gateway.http.get(CARD, headers=V1)).json() == after.json()


async def test_without_a_public_url_nothing_is_signed(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    with capture_log() as logs:
        async with running(tmp_path, signing={"keys": [str(pair.file)]}) as gateway:
            assert "signatures" not in (await gateway.http.get(CARD, headers=V1)).json()
            assert (await gateway.http.get("/.well-known/jwks.json")).json() == {"keys": [pair.key.jwk]}
    assert "cards not signed reason='public_url is not set'" in logs.text
    secret = pair.pem.splitlines()[1]
    assert secret not in logs.text


async def test_without_keys_the_key_set_is_empty(tmp_path: Path) -> None:
    async with running(tmp_path, public_url=PUBLIC) as gateway:
        keys = await gateway.http.get("/.well-known/jwks.json")
        assert (keys.json(), keys.headers["cache-control"]) == ({"keys": []}, "no-cache")
        assert "signatures" not in (await gateway.http.get(CARD, headers=V1)).json()
