"""The reference of all commands, as Markdown. ``python -m sandloom.cli.reference`` prints it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from sandloom.cli.app import cli


def markdown() -> str:
    """One section per command, in alphabetical order."""
    parts = []
    for path, command in _walk((), cli):
        usage = " ".join(["sandloom", *path, *command.collect_usage_pieces(click.Context(command))])
        lines = [f"### `{' '.join(path)}`", "", " ".join((command.help or "").split()), "", f"    {usage}"]
        options = [_option(parameter) for parameter in command.params if isinstance(parameter, click.Option)]
        if options:
            lines += ["", *options]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _walk(path: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    if command.invoke_without_command:
        yield path, command
    for name in sorted(command.commands):
        yield from _walk((*path, name), command.commands[name])


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    default = f" Default: `{option.default}`." if option.show_default and option.default is not None else ""
    return f"- {names}: {option.help or ''}{default}".rstrip()


if __name__ == "__main__":
    print(markdown(), end="")
