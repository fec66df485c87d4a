"""Tokens from an endpoint, with client credentials (KIP-768)."""

import asyncio
import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from partage.client import (
    ClientOptions,
    Cluster,
    RetryPolicy,
    TokenUnavailableError,
    parse_security_options,
)
from partage.client.security.tokens import TokenSource
from partage.model.addresses import Address

from .certificate_authority import Authority
from .sasl_broker import SaslScript, unsigned_jwt
from .scripted_broker import ScriptedBroker

BROKER = Address("broker", 9092)
SECRET = "s3cret/+ü"


class Endpoint:
    """An HTTP server; ``answers`` are (status, body, headers), and the last one repeats."""

    def __init__(self, tls=None):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append((self.path, dict(self.headers), parse_qs(body.decode())))
                answers = outer.answers
                status, said, headers = answers.pop(0) if len(answers) > 1 else answers[0]
                said = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(said)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *args):
                pass

        self.asked = []
        self.answers = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def grants(self, token, **more):
        self.answers.append((200, {"access_token": token, "token_type": "Bearer", **more}, {}))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def endpoint():
    with Endpoint() as one:
        yield one


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def options(url, **more):
    return parse_security_options(
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": url,
            "sasl_oauthbearer_client_credentials_client_id": "me",
            "sasl_oauthbearer_client_credentials_client_secret": SECRET,
            "sasl_oauthbearer_allowed_urls": (url,),
            **more,
        }
    )


def current(given, times=1):
    async def main():
        tokens = TokenSource(given)
        return [(await tokens.get_token(BROKER)).value for _ in range(times)]

    return asyncio.run(main())


def test_endpoint_grants_token_for_credentials(endpoint):
    endpoint.grants("good", expires_in=3600)
    assert current(options(endpoint.url, sasl_oauthbearer_scope="kafka read")) == ["good"]
    [(path, headers, form)] = endpoint.asked
    assert path == "/token"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    sent = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert sent == f"me:{SECRET}"


def test_credentials_may_be_url_encoded(endpoint):
    endpoint.grants("good")
    current(options(endpoint.url, sasl_oauthbearer_header_urlencode=True))
    headers = endpoint.asked[0][1]
    sent = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert sent == "me:s3cret%2F%2B%C3%BC"


def test_token_is_cached_for_most_of_its_lifetime(endpoint):
    endpoint.grants("one", expires_in=1000)
    endpoint.grants("two", expires_in=1000)

    class TurnedLoop(asyncio.SelectorEventLoop):
        ahead_s = 0.0

        def time(self):
            return super().time() + self.ahead_s

    async def main(loop):
        tokens = TokenSource(options(endpoint.url))
        got = [await asyncio.gather(*(tokens.get_token(BROKER) for _ in range(5)))]
        loop.ahead_s += 790
        got.append([await tokens.get_token(BROKER)])
        loop.ahead_s += 20
        got.append([await tokens.get_token(BROKER)])
        return [{token.value for token in some} for some in got]

    with asyncio.Runner(loop_factory=TurnedLoop) as runner:
        assert runner.run(main(runner.get_loop())) == [{"one"}, {"one"}, {"two"}]
    assert len(endpoint.asked) == 2


def test_token_expiry_is_used_without_expires_in(endpoint):
    long, short = unsigned_jwt(exp=time.time() + 1000), unsigned_jwt(exp=time.time() - 1)
    endpoint.grants(short)
    endpoint.grants(long)
    assert current(options(endpoint.url), times=3) == [short, long, long]


def test_rejected_token_is_not_reused(endpoint):
    endpoint.grants("bad", expires_in=1000)
    endpoint.grants("good", expires_in=1000)
    sasl = SaslScript("OAUTHBEARER")
    sasl.tokens.add("good")

    async def main():
        given = ClientOptions(security=options(endpoint.url))
        async with ScriptedBroker(sasl) as broker, Cluster([broker.address], given) as cluster:
            with pytest.raises(Exception, match="invalid_token"):
                await cluster.topics(["t"])
            return list(await cluster.topics(["t"]))

    assert asyncio.run(main()) == ["t"]


def test_endpoint_certificate_must_be_trusted(tmp_path):
    authority = Authority(tmp_path)
    server = authority.issue("server", "127.0.0.1").server()
    with Endpoint(server) as endpoint:
        endpoint.grants("good")
        trusting = {"sasl_oauthbearer_ssl_cafile": str(authority.certificate)}
        assert current(options(endpoint.url, **trusting)) == ["good"]
        with pytest.raises(
            TokenUnavailableError, match=r"not trusted.*sasl_oauthbearer_ssl_cafile"
        ):
            current(options(endpoint.url))
        assert len(endpoint.asked) == 1


def test_redirects_are_not_followed(endpoint):
    """CVE-2025-27817: the secret is sent only to the configured address."""
    endpoint.answers.append((307, b"", {"Location": "file:///etc/passwd"}))
    with pytest.raises(TokenUnavailableError, match="answered 307"):
        current(options(endpoint.url))
    endpoint.answers[:] = [(302, b"", {"Location": endpoint.url + "/other"})]
    with pytest.raises(TokenUnavailableError, match="answered 302"):
        current(options(endpoint.url))
    assert [path for path, _, _ in endpoint.asked] == ["/token", "/token"]


@pytest.mark.parametrize(
    ("status", "body", "why", "is_retriable"),
    [
        (401, {"error": "invalid_client"}, r"answered 401 \(invalid_client\)", False),
        (400, {"error": "secret: " + SECRET}, r"answered 400$", False),
        (400, b"<html>", r"answered 400$", False),
        (503, b"", r"answered 503$", True),
        (429, {}, r"answered 429$", True),
        (200, {"token": SECRET}, "without an access_token", False),
        (200, {"access_token": 5}, "without an access_token", False),
        (200, b"\xff" + SECRET.encode(), "without an access_token", False),
        (200, b'{"access_token": "' + b"x" * 300_000, "too large for a token", False),
        (200, {"access_token": "a b"}, "characters that are not allowed", False),
    ],
)
def test_invalid_endpoint_responses_raise(endpoint, status, body, why, is_retriable):
    endpoint.answers.append((status, body, {}))
    with pytest.raises(TokenUnavailableError, match=why) as raised:
        current(options(endpoint.url))
    assert raised.value.is_retriable == is_retriable
    assert SECRET not in str(raised.value)


def test_unavailable_endpoint_is_retried():
    with Endpoint() as gone:
        pass
    given = ClientOptions(security=options(gone.url), retries=RetryPolicy(attempts_max=2))
    sasl = SaslScript("OAUTHBEARER")

    async def main():
        async with ScriptedBroker(sasl) as broker, Cluster([broker.address], given) as cluster:
            with pytest.raises(TokenUnavailableError, match=r"cannot be reached \(.*refused"):
                await cluster.topics(["t"])
            return broker.connections

    assert asyncio.run(main()) == 2
