"""Inputs for the programs of topologies/streams, and what plain Python computes of them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from topologies.streams import cdc, enrich, fraud, logins, once, paid_orders, sessions, top_pages

MINUTE = 60_000
COUNTRIES = ("Chile", "Ghana", "Japan", "Kenya", "Latvia", "Nepal", "Peru")


def text(records: Sequence[Any]) -> list[str]:
    """Return the records as lines of JSON."""
    return [msgspec.json.encode(record).decode() for record in records]


def rows(file: Path) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def times(chance: Random, number: int, minutes: int) -> list[int]:
    """Return as many different times, in order."""
    return sorted(chance.sample(range(minutes * MINUTE), number))


def words(seed: int, number: int) -> list[str]:
    """Return lines of a few words."""
    chance = Random(seed)
    return [" ".join(chance.choices(("The", "the", "sea", "SEA", "and", "sky"), k=4)) for _ in range(number)]


def word_counts(lines: Sequence[str]) -> list[tuple[str, int]]:
    """Return how often each word occurs."""
    return sorted(Counter(" ".join(lines).lower().split()).items())


def clicks(seed: int, number: int = 60, minutes: int = 90) -> list[sessions.Click]:
    """Return clicks in order of time."""
    chance = Random(seed)
    return [sessions.Click(chance.choice("abc"), f"/{chance.randrange(14)}", at) for at in times(chance, number, minutes)]


def visits(given: Sequence[sessions.Click]) -> list[tuple[Any, ...]]:
    """Return the sessions of clicks in order of time."""
    found: dict[str, list[list[int]]] = defaultdict(list)
    for click in given:
        mine = found[click.user]
        if mine and click.at - mine[-1][-1] <= 30 * MINUTE:
            mine[-1].append(click.at)
        else:
            mine.append([click.at])
    return sorted((user, v[0], v[-1] + 30 * MINUTE, len(v)) for user, mine in found.items() for v in mine)


def page_counts(given: Sequence[top_pages.Click | sessions.Click]) -> dict[int, Counter[str]]:
    """Return how often each page was seen in the ten minutes before the end of each window."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for click in given:
        first = click.at - click.at % MINUTE + MINUTE
        for end in range(first, first + 10 * MINUTE, MINUTE):
            found[end][click.url] += 1
    return found


def check_top_pages(printed: Sequence[tuple[int, Sequence[tuple[str, int]]]], given: Sequence[Any]) -> None:
    """Check the pages that were ranked by the end of their window. Which of equal ones are left out is not defined."""
    counts = page_counts(given)
    assert sorted(end for end, _pages in printed) == sorted(counts)
    for end, pages in printed:
        assert [counts[end][url] for url, _count in pages] == [count for _url, count in pages]
        assert [count for _url, count in pages] == sorted(counts[end].values(), reverse=True)[:10]


def card_payments(seed: int, number: int = 80, minutes: int = 20) -> list[fraud.Payment]:
    """Return payments of three cards, in order of time."""
    chance = Random(seed)
    return [fraud.Payment(chance.choice("xyz"), chance.choice([50, 20_00, 900_00]), at) for at in times(chance, number, minutes)]


def alerts(given: Sequence[fraud.Payment]) -> list[tuple[str, int]]:
    """Return card and time of large payments within a minute after a small one."""
    last: dict[str, fraud.Payment] = {}
    found = []
    for payment in given:
        before = last.get(payment.card)
        if before is not None and before.cents < 1_00 and payment.cents > 500_00 and payment.at < before.at + MINUTE:
            found.append((payment.card, payment.at))
        last[payment.card] = payment
    return sorted(found)


def orders_and_payments(seed: int, number: int = 30) -> tuple[list[paid_orders.Order], list[paid_orders.Payment]]:
    """Return orders and payments, each in order of time; some orders are paid too late, or not at all."""
    chance = Random(seed)
    orders = [paid_orders.Order(str(at), at) for at in sorted(chance.sample(range(0, 10 * number * MINUTE, MINUTE), number))]
    payments = [
        paid_orders.Payment(order.id, chance.randrange(1, 9), order.at + chance.choice([0, 60, 61]) * MINUTE)
        for order in orders
        if chance.random() < 0.7
    ]
    return orders, sorted(payments, key=lambda payment: payment.at)


def paid(orders: Sequence[paid_orders.Order], payments: Sequence[paid_orders.Payment]) -> list[tuple[str, int]]:
    """Return each order with the cents that were paid within an hour."""
    found = {order.id: 0 for order in orders}
    found |= {payment.order: payment.cents for payment in payments if payment.at - int(payment.order) <= 60 * MINUTE}
    return sorted(found.items())


def repeated_payments(seed: int, number: int = 40, ids: int = 12) -> list[once.Payment]:
    """Return payments, of which many have an id that was there before."""
    chance = Random(seed)
    return [once.Payment(str(chance.randrange(ids)), cents) for cents in range(number)]


def first_payments(given: Sequence[once.Payment]) -> list[tuple[str, int]]:
    """Return the first payment of each id."""
    return sorted({payment.id: payment.cents for payment in reversed(given)}.items())


def attempts(seed: int, number: int) -> list[logins.Login]:
    """Return logins of two users, one each five seconds, most of which fail."""
    chance = Random(seed)
    return [logins.Login(chance.choice("ab"), chance.random() < 0.3, 5_000 * each) for each in range(number)]


def breaches(given: Sequence[logins.Login]) -> list[str]:
    """Return the reports about logins in order of time."""
    failed: dict[str, list[int]] = defaultdict(list)
    found = []
    for login in given:
        recent = [at for at in failed[login.user] if at > login.at - MINUTE]
        if login.ok and len(recent) >= 3:
            found.append(f"{login.user}: {len(recent)} failures, then a login")
        failed[login.user] = [] if login.ok else [*recent, login.at]
    return sorted(found)


def named_clicks(number: int) -> tuple[list[cdc.User], list[cdc.Click]]:
    """Return changes of users, and a click of one of them for each."""
    users = [cdc.User(str(each % 5), f"{each % 5}-{each}") for each in range(number)]
    return users, [cdc.Click(str(each % 7), f"/{each}") for each in range(number)]


def country_of(user: str) -> str:
    """Return the answer of the service of `enrich`."""
    return COUNTRIES[int(user) % len(COUNTRIES)]


def located(given: Sequence[enrich.Click]) -> list[tuple[str, str, str]]:
    """Return the clicks with the country of their user."""
    return sorted((click.user, click.url, country_of(click.user)) for click in given)
