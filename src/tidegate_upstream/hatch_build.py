"""The wheel of the embedded TiDB requires the Tidegate of its own version; both take it from `tidegate.__version__`."""

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class RequirementsHook(MetadataHookInterface):
    """Adds the pin to what `pyproject.toml` lists."""

    def update(self, metadata: dict[str, Any]) -> None:
        metadata["dependencies"] = [f"tidegate=={metadata['version']}", *self.config["requires"]]
