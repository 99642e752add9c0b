"""`interlink completion`: the shell code that completes commands and options."""

import click
from click.shell_completion import get_completion_class

from interlink.cli.options import HELP
from interlink.errors import UsageError

PROGRAM = "interlink"
SHELLS = ("bash", "zsh", "fish")
USE = {
    "bash": 'eval "$(interlink completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(interlink completion zsh)" in ~/.zshrc',
    "fish": "interlink completion fish > ~/.config/fish/completions/interlink.fish",
}


@click.command(name="completion", context_settings=HELP, epilog="Use it by: " + "; or ".join(USE.values()))
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion code for SHELL: bash, zsh or fish."""
    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"no completion for {shell}: use {', '.join(SHELLS)}")
    click.echo(found(ctx.find_root().command, {}, PROGRAM, "_INTERLINK_COMPLETE").source())
