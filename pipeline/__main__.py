"""`python -m trioka.pipeline spark …` and `pipeline …`: the commands of this room by themselves."""

import click

from .commands import spark
from .pipeline_commands import pipeline

if __name__ == "__main__":
    click.Group("trioka", commands=[spark, pipeline])()
