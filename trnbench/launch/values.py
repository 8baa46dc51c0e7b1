"""User values: settings that the files leave open, collected in one shell file.

Files name a value as `${NAME}`. None is a secret: credentials stay with the shell, the instance
profile or the secret store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trnbench.facts.records import Record

FILE = "values.env"
_NAMED = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
_MENTIONED = re.compile(r"\$\{([A-Z][A-Z0-9_]*)[:}]")


class UserValue(Record):
    """A value that the user fills in; a default may stay as it is."""

    name: str
    help: str
    """Meaning of the value, for the comment beside it."""
    default: str = ""
    optional: bool = False

    @property
    def to_fill_in(self) -> bool:
        """True when the user must fill in this value before launch."""
        return not (self.default or self.optional)


def _value(name: str, help: str, default: str = "", *, optional: bool = False) -> UserValue:
    return UserValue(name=name, help=help, default=default, optional=optional)


VALUES: Mapping[str, UserValue] = {
    one.name: one
    for one in (
        _value("CODE_DIR", "Folder with the framework's code, on every host or in the image."),
        _value("MODEL_DIR", "Folder with the model's config.json (and weights, to fine-tune)."),
        _value("TOKENIZER_DIR", "Folder with the tokenizer."),
        _value("DATA_DIR", "The training data, as the framework reads it."),
        _value("CHECKPOINT_DIR", "Where checkpoints are kept; every host sees it."),
        _value("COMPILE_CACHE", "Where compiled graphs are kept: a shared folder or s3:// URL."),
        _value(
            "VENV", "Virtual environment to activate; empty: what is on the PATH.", optional=True
        ),
        _value("MAX_STEPS", "Steps to train; the default is a first short run.", "100"),
        _value("LEARNING_RATE", "Learning rate; the default is that of a shipped example."),
        _value("MODEL_MODULE", "torchtitan module of the model's configurations."),
        _value("MODEL_CONFIG", "Function there that returns the model's configuration."),
        _value("RECIPE", "Recipe of Megatron Bridge, such as llama3_8b_pretrain_config."),
        _value("HOSTS", "Host names, separated by spaces; the first one leads."),
        _value("PARTITION", "Slurm partition; empty: the default one.", optional=True),
        _value("REGION", "AWS region."),
        _value("ZONE", "Availability zone; that of the reservation, where there is one."),
        _value("HEAD_SUBNET_ID", "Public subnet of the head node."),
        _value("SUBNET_ID", "Private subnet of the compute nodes, in ZONE."),
        _value("RESERVATION_ID", "Capacity Block or reservation, cr-...."),
        _value("KEY_NAME", "EC2 key pair for ssh."),
        _value("NODE_CONFIGURED_SCRIPT", "s3:// URL of a script that installs the software."),
        _value("IMAGE", "Container image with the framework, as REPOSITORY:TAG."),
        _value("IMAGE_ID", "AMI with the framework's drivers and software."),
        _value("CLAIM", "PersistentVolumeClaim of the shared file system, mounted at /shared."),
        _value("ROLE_ARN", "IAM role that the job runs as."),
        _value("OUTPUT_S3", "s3:// URL for what the job writes."),
        _value("DATA_S3", "s3:// URL of the training data."),
        _value("LAUNCH_S3", "s3:// URL to which this folder is copied for the job."),
        _value("CHECKPOINT_S3", "s3:// URL of checkpoints."),
        _value("JOB_QUEUE", "AWS Batch job queue whose compute environment has these instances."),
        _value("FILE_SYSTEM_ID", "EFS file system, mounted at /shared."),
        _value("MODEL_S3", "s3:// URL of the model's folder."),
        _value("TRAINING_PLAN_ARN", "ARN of the SageMaker training plan."),
        _value("JOB_NAME", "Name of the job or cluster."),
        _value("JOB_KIND", "pytorchjob or trainjob: which operator of Kubeflow runs it."),
        _value("CLUSTER", "ECS cluster with a capacity provider of managed instances."),
    )
}


def named_in(texts: Iterable[str]) -> tuple[str, ...]:
    names = {name for text in texts for name in _MENTIONED.findall(text)}
    return tuple(name for name in VALUES if name in names)


def word(text: str) -> str:
    """A word of a bash command line: quoted, with `${NAME}` left to the shell."""
    import shlex

    # The pattern has a group, so the names stand at the odd places of the split. Double quotes keep
    # a value with blanks a single word.
    parts = _NAMED.split(text)
    quoted = [
        f'"${{{part}}}"' if at % 2 else shlex.quote(part) if part else ""
        for at, part in enumerate(parts)
    ]
    return "".join(quoted) or "''"
