"""Work that fails after its caller was cancelled: the event loop reports no unhandled error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from partage.recipes import RedundantIndexer
from partage.recipes.blocking_recipe import WorkRunner
from partage.recipes.single_writer import _init_transactions
from shields import FailingWork


def test_work_of_blocking_recipe_raises_its_error(monkeypatch):
    work = FailingWork()
    run = WorkRunner().unit_work(lambda unit, must_stop: work())
    error, reported = work.cancel_caller(monkeypatch, lambda: run("u"))
    assert isinstance(error, LookupError)
    assert reported == []


def test_cancelled_indexer_logs_its_error(monkeypatch, caplog):
    work = FailingWork()
    indexer = object.__new__(RedundantIndexer)
    indexer._indexer = SimpleNamespace(run=lambda to_end: work(), stop=lambda: None)
    error, reported = work.cancel_caller(monkeypatch, indexer.run)
    assert isinstance(error, asyncio.CancelledError)
    assert reported == []
    assert caplog.messages == ["indexing failed when it was cancelled: error=failed at the end"]


def test_cancelled_initialization_of_producer_is_silent(monkeypatch, caplog):
    work = FailingWork()
    producer = SimpleNamespace(init_transactions=lambda timeout_s: work())
    term = SimpleNamespace(is_active=True)
    error, reported = work.cancel_caller(monkeypatch, lambda: _init_transactions(producer, term))
    assert isinstance(error, asyncio.CancelledError)
    assert reported == caplog.messages == []
