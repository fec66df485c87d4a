"""One interface to both consumers, so that each test runs with both."""

from __future__ import annotations

import inspect

import partage
from partage.client import LoopThread
from partage.sync import Consumer as SyncConsumer


class Driven:
    """`partage.Consumer` on a separate event loop, called blockingly."""

    def __init__(self, *args, **options):
        self._loop = LoopThread("user")
        try:
            self._consumer = self._loop.call(self._make(args, options))
        except BaseException:
            self._loop.stop()
            raise

    async def _make(self, args, options):
        return partage.Consumer(*args, **options)

    def __getattr__(self, name):
        method = getattr(self._consumer, name)
        if not callable(method):
            return method

        def call(*args, **options):
            async def work():
                found = method(*args, **options)
                return await found if inspect.isawaitable(found) else found

            return self._loop.call(work())

        return call

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self._loop.call(self._consumer.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
        self._loop.stop()


FACES = {"asyncio": Driven, "sync": SyncConsumer}
