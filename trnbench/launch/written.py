"""Texts of files: values that the user fills in, YAML and JSON by libraries, scripts by templates.

Files name a value as `${NAME}`; all are collected in one shell file. None is a secret: credentials
stay with the shell, the instance profile or the secret store.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import starmap
from typing import TYPE_CHECKING, Any

from trnbench.facts.records import Record
from trnbench.facts.terminal_text import markdown_text

if TYPE_CHECKING:
    from jinja2 import Environment

FILE = "values.env"
_NAMED = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
_MENTIONED = re.compile(r"\$\{([A-Z][A-Z0-9_]*)[:}]")


class UserValue(Record, kw_only=False):
    """A value that the user fills in; a default may stay as it is."""

    name: str
    help: str
    default: str = ""
    optional: bool = False

    @property
    def to_fill_in(self) -> bool:
        """True when the user must fill in this value before launch."""
        return not (self.default or self.optional)


_VALUES = (
    ("CODE_DIR", "Folder with the framework's code, on every host or in the image."),
    ("MODEL_DIR", "Folder with the model's config.json (and weights, to fine-tune)."),
    ("TOKENIZER_DIR", "Folder with the tokenizer."),
    ("DATA_DIR", "The training data, as the framework reads it."),
    ("CHECKPOINT_DIR", "Where checkpoints are kept; every host sees it."),
    ("COMPILE_CACHE", "Where compiled graphs are kept: a shared folder or s3:// URL."),
    ("VENV", "Virtual environment to activate; empty: what is on the PATH.", "", True),
    ("MAX_STEPS", "Steps to train; the default is a first short run.", "100"),
    ("LEARNING_RATE", "Learning rate; the default is that of a shipped example."),
    ("MODEL_MODULE", "torchtitan module of the model's configurations."),
    ("MODEL_CONFIG", "Function there that returns the model's configuration."),
    ("RECIPE", "Recipe of Megatron Bridge, such as llama3_8b_pretrain_config."),
    ("HOSTS", "Host names, separated by spaces; the first one leads."),
    ("PARTITION", "Slurm partition; empty: the default one.", "", True),
    ("REGION", "AWS region."),
    ("ZONE", "Availability zone; that of the reservation, where there is one."),
    ("HEAD_SUBNET_ID", "Public subnet of the head node."),
    ("SUBNET_ID", "Private subnet of the compute nodes, in ZONE."),
    ("RESERVATION_ID", "Capacity Block or reservation, cr-...."),
    ("KEY_NAME", "EC2 key pair for ssh."),
    ("NODE_CONFIGURED_SCRIPT", "s3:// URL of a script that installs the software."),
    ("IMAGE", "Container image with the framework, as REPOSITORY:TAG."),
    ("IMAGE_ID", "AMI with the framework's drivers and software."),
    ("CLAIM", "PersistentVolumeClaim of the shared file system, mounted at /shared."),
    ("ROLE_ARN", "IAM role that the job runs as."),
    ("OUTPUT_S3", "s3:// URL for what the job writes."),
    ("DATA_S3", "s3:// URL of the training data."),
    ("LAUNCH_S3", "s3:// URL to which this folder is copied for the job."),
    ("CHECKPOINT_S3", "s3:// URL of checkpoints."),
    ("JOB_QUEUE", "AWS Batch job queue whose compute environment has these instances."),
    ("FILE_SYSTEM_ID", "EFS file system, mounted at /shared."),
    ("MODEL_S3", "s3:// URL of the model's folder."),
    ("TRAINING_PLAN_ARN", "ARN of the SageMaker training plan."),
    ("JOB_NAME", "Name of the job or cluster."),
    ("JOB_KIND", "pytorchjob or trainjob: which operator of Kubeflow runs it."),
    ("CLUSTER", "ECS cluster with a capacity provider of managed instances."),
)
VALUES: Mapping[str, UserValue] = {value.name: value for value in starmap(UserValue, _VALUES)}


def named_in(texts: Iterable[str]) -> tuple[str, ...]:
    names = {name for text in texts for name in _MENTIONED.findall(text)}
    return tuple(name for name in VALUES if name in names)


def word(text: str) -> str:
    """A word of a bash command line: quoted, with `${NAME}` left to the shell."""
    # The pattern has a group, so the names stand at the odd places of the split. Double quotes keep
    # a value with blanks a single word.
    parts = _NAMED.split(text)
    quoted = [
        f'"${{{part}}}"' if at % 2 else shlex.quote(part) if part else ""
        for at, part in enumerate(parts)
    ]
    return "".join(quoted) or "''"


def yaml_text(*documents: object, head: Iterable[str] = ()) -> str:
    """Documents as YAML, each key on a line of its own, below lines of comment."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:  # noqa: ANN401
        # Quotes mark texts that a tool fills in later: unquoted, a filled-in 8 would be a number.
        style = "|" if "\n" in value else "'" if "${" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    comments = "".join(f"# {line}\n" for line in head)
    written: str = yaml.dump_all(
        documents, Dumper=Dumper, sort_keys=False, width=120, explicit_start=len(documents) > 1
    )
    return comments + written


def json_text(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def from_template(name: str, **context: object) -> str:
    """Text of a template of `templates/`.

    `|q` quotes for bash, `|word` keeps values, `|md` is for Markdown.
    """
    return _templates().get_template(f"{name}.j2").render(**context)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Not HTML: what could be read as shell passes `q` or `word`.
    templates = Environment(
        loader=PackageLoader("trnbench.launch"),
        undefined=StrictUndefined,
        comment_start_string="{##",  # bash has ${#names[@]}
        comment_end_string="##}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    templates.filters |= {"word": word, "md": markdown_text}
    templates.filters["q"] = lambda text: shlex.quote(str(text))
    return templates
