"""`pixeldiff faces`: pictures to aligned faces."""

from __future__ import annotations

import click

from pixeldiff.cli._align import align


@click.group()
def faces() -> None:
    """Faces: align pictures."""


faces.add_command(align)
