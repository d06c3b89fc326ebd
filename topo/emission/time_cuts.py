"""Cuts a batch where event time changes: rows before the change leave before it, rows behind it leave behind it.

So the rows that a reader takes for late do not depend on the size of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo.api.streams import DEFAULT_STREAM
from topo.emission.message_collectors import MessageCollector
from topo.emission.output_watermarks import OutputWatermarks
from topo.operators.time.watermarks import InputStatus


def send_in_pieces(
    collector: MessageCollector,
    time: OutputWatermarks,
    send_rows: Callable[[], None],
    send_time: Callable[[], None],
    take_signal: Callable[[Any], None],
) -> None:
    """Send the rows and signals of a spout, cut where event time changes. The caller clears the collector afterwards.

    Args:
        collector: the rows and signals; holds the rows of one piece when `send_rows` is called.
        time: takes the signals and the rows of the main stream.
        send_rows: sends the rows that the collector holds.
        send_time: sends the updates of event time.
        take_signal: takes a signal that is no watermark and no idleness, at its place between the rows.
    """
    streams, signals = collector.streams, list(collector.signals)
    main = next((stream for stream in streams if stream.declaration.name == DEFAULT_STREAM), None)
    stamps = None if main is None else main.stamp_list()
    if not signals and not time.cuts and not time.is_idle:
        time.show(() if main is None else main.rows, stamps, ids=() if main is None else collector.messages[main.index])
        send_rows()
        return
    contents, ids = [stream.contents() for stream in streams], [messages[:] for messages in collector.messages]
    totals = [len(rows) for rows, _, _ in contents]
    sent = [0] * len(streams)

    def send_up_to(counts: list[int]) -> None:
        if counts != sent:
            if time.is_idle and not time.is_used:
                time.mark_active()
                send_time()
            for stream, messages, first, last in zip(streams, collector.messages, sent, counts, strict=True):
                stream.hold(contents[stream.index], first, last)
                messages[:] = ids[stream.index][first:last]
            send_rows()
            sent[:] = counts
        send_time()

    for counts, signal in (*signals, (totals, None)):
        if main is not None and time.is_used:
            first, last, cut = sent[main.index], counts[main.index], [*counts]

            def changed(shown: int, main: int = main.index, first: int = first, cut: list[int] = cut) -> None:
                cut[main] = first + shown
                send_up_to(cut)

            rows, _, _ = contents[main.index]
            shown_ids = ids[main.index][first:last]
            time.show(rows[first:last], None if stamps is None else stamps[first:last], changed, shown_ids)
        send_up_to(counts)
        if isinstance(signal, InputStatus):
            time.mark_idle()
        elif isinstance(signal, int):
            time.watermark(signal)
        elif signal is not None:
            take_signal(signal)
        send_time()
