"""The trees of an acker against explicit tuple trees.

A forest is grown at random: spouts with several roots, tuples anchored on one or more earlier tuples (of one root or many,
the same one twice), each of them acked, failed or lost. Every control message is known, so the model can say
after each one exactly which verdicts are due; the XOR never enters into it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.hot.listed_trees import ListedTrees
from topo.ids import TaskId

NO_SPOUT = TaskId(0)
Answers = dict[TaskId, list[tuple[str, int]]]
"""By spout: the kind of each verdict and the root."""


@dataclass(frozen=True)
class Message:
    """A control message for one root; `tuple_id` names the tuple that an ack is for."""

    kind: str
    root: int
    value: int = 0
    tuple_id: int = -1
    spout: TaskId = NO_SPOUT


@dataclass
class Tuple:
    edges: dict[int, int] = field(default_factory=dict)
    out: dict[int, int] = field(default_factory=dict)


@dataclass
class Tree:
    """The model of a root: not its value, but the tuples without an ack."""

    spout: TaskId
    open_tuples: set[int] = field(default_factory=set)
    init_seen: bool = False
    failed: bool = False
    answered: bool = False
    reopened: bool = False


@dataclass
class Forest:
    trees: dict[int, Tree]
    messages: list[Message]


def grow(rng: Random, draw_id: Callable[[], int], faults: bool = True) -> Forest:
    """Grow a few trees; return them with their control messages in any order."""
    trees = {root: Tree(TaskId(rng.randint(1, 2))) for root in range(1, rng.randint(1, 4) + 1)}
    tuples: list[Tuple] = []
    messages: list[Message] = []
    for root, tree in trees.items():
        value = 0
        for _ in range(rng.randint(1, 3)):
            edge = draw_id()
            value ^= edge
            tuples.append(Tuple({root: edge}))
        messages.append(Message("init", root, value, spout=tree.spout))
    for _ in range(rng.randint(0, 6)):
        child = Tuple()
        for anchor in [rng.choice(tuples) for _ in range(rng.randint(1, 3))]:
            for root in anchor.edges:
                edge = draw_id()
                anchor.out[root] = anchor.out.get(root, 0) ^ edge
                child.edges[root] = child.edges.get(root, 0) ^ edge
        tuples.append(child)
    for tuple_id, tup in enumerate(tuples):
        outcome = rng.choice(["ack"] * 8 + ["fail", "lost"]) if faults else "ack"
        for root, edge in tup.edges.items():
            trees[root].open_tuples.add(tuple_id)
            if outcome == "ack":
                messages.append(Message("ack", root, edge ^ tup.out.get(root, 0), tuple_id))
            elif outcome == "fail":
                messages.append(Message("fail", root))
    rng.shuffle(messages)
    return Forest(trees, messages)


def disturb(rng: Random, messages: list[Message], kinds: list[str]) -> list[Message]:
    """Put a few messages in again, and some resets and rotations, anywhere. No tree fails that did not fail before."""
    disturbed = list(messages)
    for _ in range(rng.randint(0, 5)):
        kind = rng.choice(kinds)
        again = [message for message in messages if message.kind == kind]
        if kind in ("reset", "rotate"):
            again = [Message(kind, rng.choice(messages).root)]
        if not again:
            continue
        disturbed.insert(rng.randint(0, len(disturbed)), rng.choice(again))
    return disturbed


def frames(rng: Random, messages: list[Message]) -> list[list[Message]]:
    """Cut the messages into frames: neighbours of one kind and spout, more or fewer of them."""
    cut: list[list[Message]] = []
    for message in messages:
        same = cut and (cut[-1][0].kind, cut[-1][0].spout) == (message.kind, message.spout)
        if same and rng.random() < 0.7:
            cut[-1].append(message)
        else:
            cut.append([message])
    return cut


def give(ledger: ListedTrees, frame: list[Message]) -> Answers:
    roots, values = [message.root for message in frame], [message.value for message in frame]
    match frame[0].kind:
        case "init":
            ledger.init(frame[0].spout, roots, values)
        case "ack":
            ledger.ack(roots, values)
        case "fail":
            ledger.fail(roots)
        case "reset":
            ledger.reset(roots)
        case "rotate":
            ledger.rotate()
    ledger.validate()
    return ledger.verdicts()


def expect(trees: dict[int, Tree], frame: list[Message]) -> Answers:
    """The verdicts that are due after a frame: from the messages that came, never from values.

    A repeated init after an acked tree opens it again, for ever: resets are answered, nothing completes it.
    """
    verdicts: Answers = {tree.spout: [] for tree in trees.values()}
    for message in frame:
        tree = trees[message.root]
        own = verdicts[tree.spout]
        tree.init_seen |= message.kind == "init"
        tree.failed |= message.kind == "fail"
        tree.open_tuples.discard(message.tuple_id)
        if tree.answered:
            tree.reopened |= message.kind == "init" and not tree.failed
            if tree.reopened and message.kind == "reset":
                own.append(("reset", message.root))
        elif not tree.init_seen:
            continue
        elif tree.failed:
            own.append(("failed", message.root))
            tree.answered = True
        elif not tree.open_tuples:
            own.append(("acked", message.root))
            tree.answered = True
        elif message.kind == "reset":
            own.append(("reset", message.root))
    order = ("acked", "failed", "reset")
    return {spout: sorted(own, key=lambda one: order.index(one[0])) for spout, own in verdicts.items() if own}


def acks_early(hot: ModuleType, forest: Forest) -> bool:
    """Whether a root is acked while a tuple of its tree is not, if the messages arrive one by one."""
    ledger = ListedTrees(hot)
    for message in forest.messages:
        forest.trees[message.root].open_tuples.discard(message.tuple_id)
        for own in give(ledger, [message]).values():
            if any(forest.trees[root].open_tuples for kind, root in own if kind == "acked"):
                return True
    return False


def ids(seed: int, bits: int) -> Callable[[], int]:
    source = Random(seed)
    return lambda: source.getrandbits(bits) or 1


seeds = st.integers(0, 2**64 - 1)
choices = st.randoms(use_true_random=False)


@given(rng=choices, seed=seeds)
@settings(max_examples=300)
def test_every_verdict_comes_at_the_message_that_decides_it_and_only_once(hot: ModuleType, rng: Random, seed: int) -> None:
    forest = grow(rng, ids(seed, 64))
    ledger = ListedTrees(hot)
    for frame in frames(rng, disturb(rng, forest.messages, ["init", "fail", "reset"])):
        assert give(ledger, frame) == expect(forest.trees, frame)


@given(rng=choices, seed=seeds)
@settings(max_examples=200)
def test_without_faults_every_tree_is_acked_and_nothing_remains(hot: ModuleType, rng: Random, seed: int) -> None:
    forest = grow(rng, ids(seed, 64), faults=False)
    ledger = ListedTrees(hot)
    acked: list[int] = []
    for frame in frames(rng, forest.messages):
        acked += [root for own in give(ledger, frame).values() for kind, root in own if kind == "acked"]
    assert sorted(acked) == sorted(forest.trees)
    assert len(ledger.trees) == 0


@given(rng=choices, seed=seeds)
@settings(max_examples=300)
def test_no_repeat_and_no_rotation_acks_a_tree_early_or_acks_one_that_failed(hot: ModuleType, rng: Random, seed: int) -> None:
    forest = grow(rng, ids(seed, 64))
    ledger = ListedTrees(hot)
    failed: set[int] = set()
    for frame in frames(rng, disturb(rng, forest.messages, ["init", "ack", "fail", "reset", "rotate"])):
        for message in frame:
            forest.trees[message.root].open_tuples.discard(message.tuple_id)
        for kind, root in chain.from_iterable(give(ledger, frame).values()):
            if kind == "failed":
                failed.add(root)
            elif kind == "acked":
                assert not forest.trees[root].open_tuples, "acked early"
                assert root not in failed, "acked and failed"


def test_with_16_bit_ids_the_checker_does_see_early_acks(hot: ModuleType) -> None:
    """About one forest in six thousand passes a false zero; with 64 bits none ever should."""
    rng = Random(2024)
    narrow, wide = ids(2024, 16), ids(2024, 64)
    assert any(acks_early(hot, grow(rng, narrow, faults=False)) for _ in range(200_000))
    assert not any(acks_early(hot, grow(rng, wide, faults=False)) for _ in range(5_000))
