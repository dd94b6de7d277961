"""Request signing, for clusters with access control.

Owns :class:`AclHook`. A signed request has two or three additional ext fields:

================= ====================================================================
``AccessKey``     the sender
``SecurityToken`` a temporary token, if there is one
``Signature``     base64 of HMAC-SHA1, under the secret key, of the values of all ext
                  fields but this one, in the order of their names, and then the body
================= ====================================================================

Names are ordered as Java orders strings, by UTF-16 units. Both generations of upstream's access
control check signatures this way.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from roquet.remoting.hooks import RpcCall, RpcHook

__all__ = ["AclHook", "signature"]

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE = "Signature"


def signature(ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """Return the signature of a request.

    Args:
        ext_fields: All ext fields; an existing signature is ignored.
        body: The body.
        secret_key: The secret.

    Example:
        >>> signature({"topic": "T", "AccessKey": "shop"}, b"hi", "12345678")
        'G6aNP9JR2auTidVFIy+g3n7WBno='
    """
    names = sorted(
        (name for name in ext_fields if name != SIGNATURE),
        key=lambda name: name.encode("utf-16-be", "surrogatepass"),
    )
    content = "".join(ext_fields[name] for name in names).encode("utf-8", "replace")
    digest = hmac.new(secret_key.encode(), content + body, hashlib.sha1).digest()
    return base64.b64encode(digest).decode("ascii")


class AclHook(RpcHook):
    """Signs every outgoing request.

    Args:
        access_key: Identifies the sender.
        secret_key: The key for the signatures.
        security_token: A temporary token that belongs to the keys.

    Example:
        >>> from roquet.remoting.client import RemotingClient
        >>> async def main() -> None:
        ...     async with RemotingClient(hooks=[AclHook("shop", "12345678")]):
        ...         pass  # whatever it asks is signed
        >>> import asyncio
        >>> asyncio.run(main())
    """

    def __init__(self, access_key: str, secret_key: str, security_token: str = "") -> None:
        self._access_key = access_key
        self._secret_key = secret_key
        self._security_token = security_token

    def before_request(self, call: RpcCall) -> None:
        """Sign an outgoing request; incoming ones are left alone.

        Example:
            AclHook("shop", "12345678").before_request(call)
            assert "Signature" in call.request.ext_fields
        """
        if call.is_incoming:
            return
        request = call.request
        fields = dict(request.ext_fields or {})
        fields[ACCESS_KEY] = self._access_key
        if self._security_token:
            fields[SECURITY_TOKEN] = self._security_token
        fields[SIGNATURE] = signature(fields, request.body, self._secret_key)
        request.ext_fields = fields
