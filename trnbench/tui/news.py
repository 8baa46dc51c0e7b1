"""The message by which a lane's news reaches the view that asked."""

from __future__ import annotations

from textual.message import Message

from trnbench.tui.work import News


class WorkNews(Message):
    """Something new about question `generation` of a lane."""

    def __init__(self, lane: str, generation: int, news: News) -> None:
        super().__init__()
        self.lane = lane
        self.generation = generation
        self.news = news
