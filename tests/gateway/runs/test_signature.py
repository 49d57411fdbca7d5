"""Tests of the signatures of webhooks."""

import pytest

from babelgate.canonical import FaultError
from babelgate.gateway.runs.signature import Signer


def test_the_signature_is_that_of_the_specification() -> None:
    """Sign the example of the libraries of Standard Webhooks."""
    signer = Signer("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signer.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1614265330)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_without_prefix_is_used_as_bytes() -> None:
    signature = Signer("secret").headers("id", b"{}", 0)["webhook-signature"]
    assert signature.startswith("v1,") and signature != Signer("other").headers("id", b"{}", 0)["webhook-signature"]


def test_a_secret_with_invalid_base64_is_refused() -> None:
    with pytest.raises(FaultError, match="base64"):
        Signer("whsec_*")
