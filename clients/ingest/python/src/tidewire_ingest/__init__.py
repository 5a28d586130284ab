"""Clients of Tidewire's native ingest protocol: a producer whose messages are stored once, and a reader.

``Producer`` and ``Reader`` wait; ``tidewire_ingest.aio`` has both for asyncio. Only the standard library is used.
"""

from ._codec import ReaderWelcome, Welcome
from ._connecting import Address, Retry
from ._errors import (Closed, Forgotten, Gap, GaveUp, IngestError, Level, LevelNotGranted, Lost, MessageTooLarge, NameTaken,
                      NotAcknowledged, Overtaken, ProtocolError, Reason, Refused, Unanswered, Unreachable, WrongId)
from ._reading import Record
from ._settings import Begin
from .blocking import Producer, Reader

__version__ = "0.3.0"
__all__ = ["Address", "Begin", "Closed", "Forgotten", "Gap", "GaveUp", "IngestError", "Level", "LevelNotGranted", "Lost",
           "MessageTooLarge", "NameTaken", "NotAcknowledged", "Overtaken", "Producer", "ProtocolError", "Reader", "ReaderWelcome",
           "Reason", "Record", "Refused", "Retry", "Unanswered", "Unreachable", "Welcome", "WrongId"]
