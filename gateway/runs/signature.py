"""Signed webhooks, as Standard Webhooks 1.0 has it: an id that is the same for each try, the time of the try, and an
HMAC of both with the body."""

import base64
import binascii
import hmac
import time
from hashlib import sha256

from babelgate.canonical.fault import FaultCode, FaultError

_PREFIX = "whsec_"


class Signer:
    def __init__(self, secret: str) -> None:
        """What stands after `whsec_` is base64; any other secret is its own bytes. Raises invalid."""
        if secret.startswith(_PREFIX):
            try:
                self._key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
            except binascii.Error as error:
                raise FaultError(FaultCode.INVALID, "webhook_secret: what follows whsec_ is not base64") from error
        else:
            self._key = secret.encode()

    def headers(self, message_id: str, body: bytes, at: int | None = None) -> dict[str, str]:
        """`at` = seconds since 1970; now where it is None."""
        now = int(time.time()) if at is None else at
        signed = f"{message_id}.{now}.".encode() + body
        signature = base64.b64encode(hmac.digest(self._key, signed, sha256)).decode()
        # "Webhook headers", standard-webhooks/spec: the scheme of a symmetric signature is v1.
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": f"v1,{signature}",
        }
