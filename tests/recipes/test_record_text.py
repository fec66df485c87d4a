"""Text of a record for the search index: JSON escapes are decoded."""

import json

import pytest

from partage.client.consumer import Record
from partage.model.topic_partition import TopicPartition
from partage.recipes.search import search
from partage.recipes.search_index import Document, record_text
from partage.recipes.sqlite_index import SqliteIndexStore


def text_of(value):
    record = Record("t", 0, 0, 0, 0, None, value, ())
    return record_text(record)


def test_record_without_value_has_no_text():
    assert text_of(None) is None


@pytest.mark.parametrize(
    "document",
    [
        {"city": "München"},
        {"emoji": "🛬 landed", "kanji": "羽田"},
        {"quote": 'say "hi"', "path": "C:\\users", "literal": "\\u00fc"},
        {"control": "\x00\x1f", "lone": "\ud800"},
        ["Zürich"],
        "Genève",
    ],
)
def test_escaped_json_decodes_to_same_document(document):
    text = text_of(json.dumps(document).encode())
    assert json.loads(text) == document
    assert "\\u00fc" not in text.replace("\\\\u00fc", "")


def test_whitespace_escapes_separate_words():
    assert text_of(json.dumps({"address": "Airport\nMünchen\tEDDM"}).encode()) == (
        '{"address": "Airport\nMünchen\tEDDM"}'
    )


@pytest.mark.parametrize(
    "value", [rb"C:\u00fcbersicht", b'{"a": "\\u00fc"', b"[" * 100_000 + b"\\u00fc", b"\xff\\u00fc"]
)
def test_text_that_is_not_json_is_unchanged(value):
    assert text_of(value) == value.decode(errors="replace")


def test_word_in_escaped_json_is_found(tmp_path):
    indexes = SqliteIndexStore(tmp_path)
    text = text_of(json.dumps({"from": "München", "note": "late\nüberbucht"}).encode())
    indexes.open(TopicPartition("t", 0), "").add([Document(0, 0, None, text)], 1)
    for word in ("München", "munchen", "überbucht"):
        assert [hit.offset for hit in search(tmp_path, word)] == [0]
    indexes.close()
