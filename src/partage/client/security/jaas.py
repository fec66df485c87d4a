"""A parser for Java's ``sasl.jaas.config``: a login module and its options in one line."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_OPTION: Final = re.compile(r"""(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")


class JaasLogin(NamedTuple):
    """The class name of a login module without its package, and its options."""

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> JaasLogin:
    """Parse the login in ``text``; text in another format gives an empty module name."""
    name = re.match(r"\s*([\w.]*)", text)
    module = name[1].rpartition(".")[2] if name else ""
    return JaasLogin(module, {key: _unquoted(value) for key, value in _OPTION.findall(text)})


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[:1] in "\"'" else text
