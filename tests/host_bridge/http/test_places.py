"""Where the server is, how it may be named, and TLS."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from host_bridge.http import server as http_server
from host_bridge.http.server import HttpServer, HttpSettings, places_of
from messages.errors import InvalidArgument, StorageError
from messages.operator import LOCAL_OPERATOR
from tests.host_bridge.fake_bridge import HOST_KEY
from tests.host_bridge.fake_bridge import KnowledgeBridge as Bridge
from tests.host_bridge.http.world import OWNER, read_all
from tests.kit.leaks import nothing_left

LARGE = {"tool": "knowledge_status", "arguments": {"act": "large", "size": 3_000_000}, "audience": OWNER}


def test_a_server_at_every_address_is_named_by_an_address_or_its_public_name_and_by_no_other_name() -> None:
    places = places_of("0.0.0.0", 8765, "http", "k1.localhost", "https://memory.example/x")
    for host in ("192.0.2.7:8765", "[2001:db8::1]:8765", "memory.example", "MEMORY.example", "k1.localhost:8765"):
        assert places.has_host(host), host
    for host in ("192.0.2.7", "192.0.2.7:80", "evil.example:8765", "1.evil.example:8765", "[::1", "0x7f01:8765", ""):
        assert not places.has_host(host), host
    for origin in ("http://192.0.2.7:8765", "https://memory.example"):
        assert places.has_origin(origin), origin
    for origin in ("https://192.0.2.7:8765", "http://evil.example:8765", "http://memory.example", "null", "192.0.2.7"):
        assert not places.has_origin(origin), origin


def test_a_server_on_loopback_is_named_by_no_other_address() -> None:
    places = places_of("127.0.0.1", 8765, "http", "k1.localhost", None)
    assert places.has_host("127.0.0.1:8765")
    assert not places.has_host("192.0.2.7:8765")
    assert not places.has_host("127.0.0.2:8765")


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.7:0", "example.com:0"])
def test_an_address_that_others_reach_is_refused_before_it_is_bound(
    listen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("bound")

    monkeypatch.setattr(http_server, "_bind", never)
    with pytest.raises(InvalidArgument) as caught:
        HttpServer(Bridge(), HttpSettings(listen))
    assert caught.value.fields["reason"] == "insecure_bind"


@contextmanager
def with_tls(folder: Path) -> Iterator[tuple[HttpServer, ssl.SSLContext]]:
    key, cert = folder / "key.pem", folder / "cert.pem"
    openssl = shutil.which("openssl")
    assert openssl is not None
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(cert), "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    server = HttpServer(Bridge(), HttpSettings("127.0.0.1:0", cert_file=cert, key_file=key))
    try:
        yield server, ssl.create_default_context(cafile=cert)
    finally:
        server.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with it")
def test_with_tls_it_answers_over_tls_alone_and_its_cookie_never_leaves_over_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.3)
    with nothing_left(), with_tls(tmp_path) as (server, context):
        base = f"https://localhost:{server.port}"
        with httpx.Client(base_url=base, verify=context, trust_env=False) as client:
            assert client.get("/healthz").json() == {"status": "ok"}
            path = server.session_link(LOCAL_OPERATOR).partition(f":{server.port}")[2]
            cookie = client.get(path).headers["set-cookie"]
            large = {"jsonrpc": "2.0", "id": 1, "method": "tools.call", "params": LARGE}
            head = {"Authorization": f"Bearer {HOST_KEY}"}
            assert len(client.post("/rpc", json=large, headers=head).json()["result"]["text"]) == 3_000_000
        assert cookie.startswith("__Host-knowledge-session=")
        assert "; Secure" in cookie
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as plain:
            plain.sendall(f"GET /healthz HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
            assert b"HTTP/1.1" not in read_all(plain)
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as silent:
            assert read_all(silent) == b"", "a handshake that does not come is not waited for"


def test_a_certificate_that_cannot_be_used_is_named_before_anything_is_bound(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing")
    with pytest.raises(StorageError) as caught:
        HttpServer(
            Bridge(), HttpSettings("0.0.0.0:0", cert_file=tmp_path / "cert.pem", key_file=tmp_path / "key.pem")
        )
    assert caught.value.fields["reason"] == "tls"
