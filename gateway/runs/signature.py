"""Signed webhooks, as specified by Standard Webhooks 1.0.

Each request has an id that is the same for all tries, the time of the try, and an HMAC of the id, the time and the
body.
"""

import base64
import binascii
import hmac
import time
from hashlib import sha256

from babelgate.canonical.fault import FaultCode, FaultError

_PREFIX = "whsec_"


class Signer:
    """Signer of webhook requests, with one secret."""

    def __init__(self, secret: str) -> None:
        """Create a signer. The key is the base64 text after `whsec_`, or the bytes of a secret without that prefix.

        Raises invalid if the text after `whsec_` is not base64.
        """
        if secret.startswith(_PREFIX):
            try:
                self._key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
            except binascii.Error as error:
                raise FaultError(FaultCode.INVALID, "webhook_secret: expected base64 after whsec_") from error
        else:
            self._key = secret.encode()

    def headers(self, message_id: str, body: bytes, at: int | None = None) -> dict[str, str]:
        """Return the headers `webhook-id`, `webhook-timestamp` and `webhook-signature` of a body. `at` is the time in
        seconds since 1970; None means now."""
        now = int(time.time()) if at is None else at
        content = f"{message_id}.{now}.".encode() + body
        signature = base64.b64encode(hmac.digest(self._key, content, sha256)).decode()
        # "Webhook headers", standard-webhooks/spec: the scheme of a symmetric signature is v1.
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": f"v1,{signature}",
        }
