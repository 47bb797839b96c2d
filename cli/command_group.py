"""Groups of commands: aliases of commands, and a suggestion for an unknown command."""

from collections.abc import Mapping

import click

from .terminal.failure import Exit, Failure, did_you_mean


class Group(click.Group):
    """A group whose commands may have aliases, and which suggests a similar command for an unknown one."""

    aliases: Mapping[str, str] = {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hints = [*did_you_mean(args[0], self.list_commands(ctx)), f"see: {ctx.command_path} --help"]
            raise Failure(f"{ctx.command_path} has no command '{args[0]}'", exit_code=Exit.USAGE, hints=hints)
        return super().resolve_command(ctx, args)


def group(name: str, help: str, **aliases: str) -> Group:
    made = Group(name, help=help)
    made.aliases = {alias.replace("_", "-"): command.replace("_", "-") for alias, command in aliases.items()}
    return made
