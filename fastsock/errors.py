"""The exception that fastsock adds. Socket calls raise the exceptions of the standard library."""

from __future__ import annotations

__all__ = ["SettingError"]


class SettingError(ValueError):
    """A setting is out of range. Attributes: `setting` (its name), `value`, `permitted` (the allowed values)."""

    def __init__(self, setting: str, value: object, permitted: str) -> None:
        super().__init__(f"{setting} (FASTSOCK_{setting.upper()}) is {value!r}, but must be {permitted}")
        self.setting = setting
        self.value = value
        self.permitted = permitted
