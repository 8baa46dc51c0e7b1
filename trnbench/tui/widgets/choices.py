"""A list of options that turns no page where it has no room for a line."""

from __future__ import annotations

from textual.widgets import OptionList


class Choices(OptionList):
    """A list of options; in a list without area, Textual lays out no lines, and no pages."""

    @property
    def _has_lines(self) -> bool:
        return bool(self.scrollable_content_region)

    def action_page_up(self) -> None:
        if self._has_lines:
            super().action_page_up()  # type: ignore[no-untyped-call]

    def action_page_down(self) -> None:
        if self._has_lines:
            super().action_page_down()  # type: ignore[no-untyped-call]
