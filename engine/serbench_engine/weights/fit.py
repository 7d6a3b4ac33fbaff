"""Compares the tensors that files hold with those that a configuration asks for, before any process is started.

It does not read tensors. It sees safetensors files only: others are checked while they are loaded.
"""

from collections.abc import Mapping
from pathlib import Path

from serbench_engine.errors import ModelError
from serbench_engine.models.config import ModelConfig, WeightsSource
from serbench_engine.weights.names import Shape, expected_shapes, full_name
from serbench_engine.weights.safetensors_header import read_shapes


def check_fit(source: WeightsSource, config: ModelConfig, where: str) -> None:
    """Check the headers of a safetensors source; nothing for other kinds.

    Raises:
        ModelError: a tensor that is missing or has another shape, with both shapes; unreadable files.
    """
    if source.kind != "safetensors":
        return
    found: dict[str, Shape] = {}
    for file in source.files:
        found |= {full_name(name, config): shape for name, shape in read_shapes(Path(file)).items()}
    compare(found, expected_shapes(config), where)


def compare(found: Mapping[str, Shape], expected: Mapping[str, Shape], where: str) -> None:
    """Every expected tensor must be there, in its shape; others may be there too.

    Raises:
        ModelError: naming the first one that is not.
    """
    missing = [name for name in expected if name not in found]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(f"the weights in {where} do not fit its configuration: {missing[0]}{more} not among them")
    for name, shape in expected.items():
        if found[name] != shape:
            raise ModelError(
                f"the weights in {where} do not fit its configuration: "
                f"{name} is {list(found[name])}, it must be {list(shape)}"
            )
