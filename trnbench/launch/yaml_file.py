"""Reading one YAML document of others: plain data, of a size that is bounded before it is built.

Anchors make much of little: a few lines of merges (`<<: [*a, *a]`) or of lists of aliases stand for
more nodes than any memory holds. So nodes are counted as often as they would be built or shown.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnbench.facts.catalog.text_file import read_text, refused

if TYPE_CHECKING:
    from yaml.nodes import Node

MAX_BYTES = 1 << 17
"""Configurations have some kilobytes."""
MOST_NODES = 100_000


def read_yaml(path: Path) -> Any:  # noqa: ANN401 - plain data
    """Plain data of the single document of a file; DataFileError for any other content."""
    import yaml

    loader = yaml.SafeLoader(read_text(path, what="configuration", max_bytes=MAX_BYTES))
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _count(path, root, {})
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f" in line {place.line + 1}" if place is not None else ""
        raise refused(path, f"is not one YAML document{where}; correct it there") from None
    finally:
        loader.dispose()


def _count(path: Path, node: Node, counts: dict[Node, int]) -> int:
    """Nodes below a node, aliases counted at every use; an error above `MOST_NODES`."""
    if node in counts:
        if not counts[node]:
            raise refused(path, f"line {_line(node)}: has an anchor inside itself; remove it")
        return counts[node]
    counts[node] = 0
    inside = node.value if isinstance(node.value, list) else ()
    pairs = (one if isinstance(one, tuple) else (one,) for one in inside)
    total = 1 + sum(_count(path, one, counts) for pair in pairs for one in pair)
    if total > MOST_NODES:
        message = f"line {_line(node)}: stands for more than {MOST_NODES:,} values"
        raise refused(path, f"{message} with its aliases; write fewer")
    counts[node] = total
    return total


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
