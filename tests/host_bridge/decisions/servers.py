"""A real HTTP server on loopback that answers as it is told, and remembers what it was asked."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Endpoint:
    """The server: set ``behave``, read ``seen``. ``stopping`` is set when the test is over."""

    port: int
    behave: Callable[[Handler], None]
    seen: list[Seen] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    connections: int = 0
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released once for every connection that is over."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Handler(BaseHTTPRequestHandler):
    """Reads one request, then behaves."""

    protocol_version = "HTTP/1.1"
    timeout = 20
    endpoint: ClassVar[Endpoint]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.endpoint.seen.append(Seen(self.path, dict(self.headers), json.loads(body)))
        try:
            self.endpoint.behave(self)
        except OSError:
            self.close_connection = True  # the client is gone

    def do_GET(self) -> None:
        self.endpoint.seen.append(Seen(self.path, dict(self.headers), None))
        self.answer(200, [])

    def answer(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        self.raw(status, value if isinstance(value, bytes) else json.dumps(value).encode(), headers)

    def raw(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def last(self) -> Any:
        """The body of this request."""
        return self.endpoint.seen[-1].body

    def drip(self, data: bytes) -> None:
        """A byte now and then, without an end, until the client leaves or the test is over."""
        while not self.endpoint.stopping.wait(0.005):
            self.wfile.write(data)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    endpoint: Endpoint

    def get_request(self) -> tuple[socket.socket, Any]:
        accepted = super().get_request()
        self.endpoint.connections += 1
        return accepted

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.endpoint.ended.release()

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that leave in the middle are what these tests are about


Behaviour: TypeAlias = Callable[[Handler], None]


@contextmanager
def serving(behave: Behaviour, certificate: Path | None = None) -> Iterator[Endpoint]:
    """The server for the time of the block; with TLS where a file with certificate and key is given."""
    handler = type("Bound", (Handler,), {})
    with Server(("127.0.0.1", 0), handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        endpoint = Endpoint(server.server_address[1], behave)
        handler.endpoint = server.endpoint = endpoint  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield endpoint
        finally:
            endpoint.stopping.set()
            server.shutdown()
            thread.join()


def results(handler: Handler, scores: Sequence[float], form: str = "documents") -> None:
    """The answer of Cohere, Jina, vLLM and Infinity, best first."""
    assert len(handler.last()[form]) == len(scores)
    ranked = sorted(enumerate(scores), key=lambda item: -item[1])
    handler.answer(200, {"results": [{"index": index, "relevance_score": score} for index, score in ranked]})


def self_signed(folder: Path) -> Path:
    """A certificate for ``localhost`` that nobody has signed but itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(pem)
    )
    return file
