"""TLS contexts for the works with TLS, on a certificate of `localhost` made for tests."""

from __future__ import annotations

import ssl
from pathlib import Path

CERTIFICATE = Path(__file__).resolve().parent / "localhost.pem"


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))
