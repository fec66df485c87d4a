"""SASL/OAUTHBEARER: sources of tokens, and rejections."""

import asyncio
import subprocess
import sys
import time

import pytest

from partage.client import (
    Cluster,
    Token,
    TokenRejectedError,
    TokenUnavailableError,
)

from .sasl_broker import SaslScript, unsigned_jwt
from .sasl_client import options, refused, topics
from .scripted_broker import ScriptedBroker


class TestTokens:
    def provided(self, provider, *good, sasl=None):
        sasl = sasl or SaslScript("OAUTHBEARER")
        sasl.tokens |= set(good)
        given = options("OAUTHBEARER", sasl_oauth_token_provider=provider)
        return topics(given, sasl)[0], sasl

    def test_token_from_function(self):
        names, sasl = self.provided(lambda: "good", "good")
        assert names == ["t"]
        assert sasl.said == [b"n,,\x01auth=Bearer good\x01\x01"]

    def test_token_from_async_function(self):
        async def provider():
            await asyncio.sleep(0)
            return "good"

        assert self.provided(provider, "good")[0] == ["t"]
        assert self.provided(lambda: provider(), "good")[0] == ["t"]

    def test_blocking_provider_does_not_block_loop(self):
        """It runs outside the loop; the test counts ticks during ten calls."""
        ticks = []

        def provider():
            while len(ticks) < 10:
                time.sleep(0.001)
            return "good"

        async def tick():
            while True:
                ticks.append(1)
                await asyncio.sleep(0.001)

        async def main():
            sasl = SaslScript("OAUTHBEARER")
            sasl.tokens.add("good")
            given = options("OAUTHBEARER", sasl_oauth_token_provider=provider)
            ticking = asyncio.create_task(tick())
            async with ScriptedBroker(sasl) as broker, Cluster([broker.address], given) as cluster:
                await cluster.topics(["t"])
            ticking.cancel()

        asyncio.run(asyncio.wait_for(main(), 20))

    def test_hanging_provider_does_not_block_exit(self):
        script = (
            "import asyncio, time\n"
            "from partage.client.daemon_thread import run_in_daemon_thread\n"
            "async def main():\n"
            "    work = run_in_daemon_thread(lambda: time.sleep(3600))\n"
            "    await asyncio.wait_for(work, 0.01)\n"
            "try: asyncio.run(main())\n"
            "except TimeoutError: print('ended')\n"
        )
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout == "ended\n", done.stderr

    def test_provider_object_of_other_clients(self):
        class Provider:
            def token(self):
                return "good"

            def extensions(self):
                return {"logicalCluster": "lkc-1"}

        _, sasl = self.provided(Provider(), "good")
        assert sasl.said == [b"n,,\x01auth=Bearer good\x01logicalCluster=lkc-1\x01\x01"]

    def test_extensions_are_sent(self):
        _, sasl = self.provided(lambda: Token("good", {"traceId": "7"}), "good")
        assert sasl.said == [b"n,,\x01auth=Bearer good\x01traceId=7\x01\x01"]

    def test_rejected_token_raises(self):
        provider = {"sasl_oauth_token_provider": lambda: "bad.token"}
        sasl = SaslScript("OAUTHBEARER")
        given = options("OAUTHBEARER", **provider)
        said = refused(TokenRejectedError, given, sasl, "invalid_token; check the token's issuer")
        assert "bad.token" not in said
        assert sasl.said[1:] == [b"\x01"]

    def test_expired_token_is_named(self):
        token = unsigned_jwt(sub="alice", exp=time.time() - 100)
        given = options("OAUTHBEARER", sasl_oauth_token_provider=lambda: token)
        refused(
            TokenRejectedError,
            given,
            SaslScript("OAUTHBEARER"),
            r"the token expired 10\d s ago; let",
        )

    def test_failing_provider_raises(self):
        def provider():
            raise ValueError("secret of the provider")

        given = options("OAUTHBEARER", sasl_oauth_token_provider=provider)
        said = refused(
            TokenUnavailableError, given, SaslScript("OAUTHBEARER"), "provider raised ValueError"
        )
        assert "secret" not in said

    @pytest.mark.parametrize(
        ("token", "why"),
        [
            (None, "returned NoneType, not text"),
            (b"good", "returned bytes, not text"),
            ("", "characters that are not allowed"),
            ("good\x01auth=Bearer other", "characters that are not allowed"),
            (Token("good", {"auth": "x"}), "'auth' cannot be sent"),
            (Token("good", {"a": "x\x01auth=Bearer y"}), "'a' cannot be sent"),
            (Token("good", {"a b": "x"}), "'a b' cannot be sent"),
        ],
    )
    def test_invalid_token_raises(self, token, why):
        given = options("OAUTHBEARER", sasl_oauth_token_provider=lambda: token)
        sasl = SaslScript("OAUTHBEARER")
        refused(TokenUnavailableError, given, sasl, why)
        assert sasl.said == []
