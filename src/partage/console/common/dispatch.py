"""Lazy import of commands, and one line on stderr for each error."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Final, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, TyperException

from partage.console.common.errors import EXIT_FAILED, EXIT_USAGE, CommandError

#: The extra that installs a package, for packages that only some commands need.
_EXTRAS: Final = {
    "kazoo": "zookeeper",
    "matplotlib": "charts",
    "pyarrow": "arrow",
    "pyspark": "spark",
    "scramp": "sasl",
    "starlette": "web",
    "uvicorn": "web",
}


class CommandGroup(TyperGroup):
    """A command group that prints its help if no sub-command is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            print(ctx.get_help(), file=sys.stderr)
            ctx.exit(EXIT_USAGE)
        return super().parse_args(ctx, args)


class LazyCommands(CommandGroup):
    """A command group that imports a command's module when the command is used.

    `partage broker` does not import librdkafka, and `partage topics` does not import the broker. As
    the root group it prints each error as one line on stderr.
    """

    targets: ClassVar[Mapping[str, str]] = {}
    """Targets by command name: ``module:name`` of a function or of a Typer application."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *self.targets]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        target = self.targets.get(cmd_name)
        return _load(cmd_name, target) if target else super().get_command(ctx, cmd_name)

    def main(self, *args: Any, **options: Any) -> Any:
        standalone = options.get("standalone_mode", True)
        options["standalone_mode"] = False
        if not standalone:
            return super().main(*args, **options)
        try:
            exit_code = super().main(*args, **options)
        except CommandError as failure:
            _end(failure.message, failure.exit_code)
        except TyperException as error:
            _end(_one_line(error), EXIT_USAGE)
        except Abort:
            _end("stopped", 130)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _EXTRAS:
                raise
            extra = _EXTRAS[package]
            _end(f"this command needs {package}: pip install 'partage[{extra}]'", EXIT_FAILED)
        sys.exit(exit_code or 0)


def command_app(summary: str | None = None, cls: type[TyperGroup] = CommandGroup) -> typer.Typer:
    """Return a Typer application with plain-text help. Rich help would truncate words."""
    return typer.Typer(
        cls=cls,
        help=summary,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def _load(name: str, target: str) -> Any:
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        group = typer.main.get_command(found)
        group.name = name
        return group
    single = command_app()
    single.command(name)(found)
    return typer.main.get_command(single)


def _one_line(error: TyperException) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see {context.command_path} --help" if context else message


def _end(message: str, exit_code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(exit_code)
