"""Coalescing of text deltas (batching): consecutive records that only add text to the same part form a passage.

Most of a long response consists of passages, whose frames differ in their text only. So streams encode a passage at
once.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from babelgate.canonical import Record
from babelgate.canonical.event import PartDelta


def split_passages(records: Sequence[Record]) -> Iterator[tuple[Sequence[Record], Sequence[str]]]:
    """Yield the records in order, in groups. A group is a passage with the text of each record, or any other record
    alone, without texts. A single text delta is also a passage."""
    place = 0
    while place < len(records):
        record = records[place]
        event, texts = record.event, list[str]()
        if type(event) is PartDelta and event.text and not event.extra:
            message_id, index, run_id = event.message_id, event.index, record.run_id
            texts.append(event.text)
            for other in islice(records, place + 1, None):
                more = other.event
                if (
                    type(more) is not PartDelta
                    or not more.text
                    or more.extra
                    or more.message_id != message_id
                    or more.index != index
                    or other.run_id != run_id
                ):
                    break
                texts.append(more.text)
        end = place + (len(texts) or 1)
        yield records[place:end], texts
        place = end
