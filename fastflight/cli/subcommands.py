"""`ListGroup`: a command that lists, such as `fastflight devices`, and has subcommands beside that."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

LIST = "list"


class ListGroup(TyperGroup):
    """A group that runs its subcommand `list` if none is named: `devices --json` is `devices list --json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [LIST, *args])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the options of `list`, which can be given without its name."""
        own = self.params
        self.params = [*own, *self.commands[LIST].params]
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params = own
