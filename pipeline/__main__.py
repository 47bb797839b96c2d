"""`python -m trioka.pipeline spark …` and `pipeline …`: the commands of this package by themselves."""

import click

from .pipeline_commands import pipeline
from .spark_commands import spark

if __name__ == "__main__":
    click.Group("trioka", commands=[spark, pipeline])()
