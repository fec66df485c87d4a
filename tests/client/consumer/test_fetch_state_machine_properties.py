"""Properties of the fetch state machine under random steps of users and brokers."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from partage.client.consumer.fetch_state_machine import FetchedData, OutOfRange, RetryLater
from partage.client.consumer.partition_state import FetchedChunk

from .fetch_fixtures import EVERYWHERE, A, B, C, made, yes


def is_empty(offset):
    """True if an offset has no record, as after compaction, or at the end of transactions."""
    return offset % 10 > 7 or offset // 10 % 4 == 3


def run_end(offset):
    """Return the end of the offsets that all have records, or all have none."""
    end = offset + 1
    while is_empty(end) == is_empty(offset) and end % 10:
        end += 1
    return end


#: Most fetches bring records, so that several chunks of a partition are often buffered.
ANSWERS = [*["something"] * 5, "nothing", "later", "out of range"]


class Reading(RuleBasedStateMachine):
    """Random steps of users and brokers: no gap, no duplicate, no record of a removed partition."""

    def __init__(self):
        super().__init__()
        self.buffer_bytes = 300
        self.due = dict.fromkeys((A, B, C), 0)  # the next offset to deliver
        self.out = []
        self.paused = set()
        self.loan = None
        self.now_ms = 0
        self.must_check = True

    partitions = st.sampled_from([A, B, C])

    @initialize(buffer_bytes=st.sampled_from([100, 150, 150, 200, 300]))
    def make(self, buffer_bytes):
        """In a small buffer, paused partitions give up their records."""
        self.buffer_bytes = buffer_bytes
        self.positions = made(A, B, C, buffer_bytes=buffer_bytes)

    @rule()
    def fetch(self):
        self.now_ms += 1
        fetches, lookups = self.check_for_work()
        for one in fetches:
            assert one.broker_id not in {f.broker_id for f in self.out}
            assert one.bytes_max > 0
            self.out.append(one)
        self.answer_lookups(lookups, 7)

    def check_for_work(self):
        """Check as the shell does after each event that may allow work."""
        fetches = self.positions.fetches(EVERYWHERE, self.now_ms)
        lookups = self.positions.lookups(EVERYWHERE, self.now_ms)
        self.must_check = False
        return fetches, lookups

    def answer_lookups(self, lookups, offset):
        for lookup in lookups:
            self.positions.lookup_succeeded(lookup, offset)
            self.due[lookup.permit.partition] = offset
            self.must_check = True

    def delivered(self):
        """Deliveries that the shell does not check after allow no work."""
        self.must_check |= self.positions.awaits_delivery
        if not self.must_check:
            assert self.check_for_work() == ([], [])

    @rule(data=st.data())
    def fetch_and_answer(self, data):
        self.fetch()
        while self.out:
            self.answer(data)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def answer(self, data):
        one = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        left = one.bytes_max
        for wanted in one.partitions:
            kind = data.draw(st.sampled_from(ANSWERS))
            if kind == "nothing" or left <= 0:
                said = FetchedData()
            elif kind == "out of range":
                said = OutOfRange()
            elif kind == "later":
                said = RetryLater(self.now_ms + 2)
            else:
                most = run_end(wanted.offset) - wanted.offset
                count = data.draw(st.just(most) | st.integers(1, most))
                size = (
                    0
                    if is_empty(wanted.offset)
                    else data.draw(st.integers(1, min(left, 100)) | st.just(min(left, 100)))
                )
                left -= size
                content = None if is_empty(wanted.offset) else "records"
                said = FetchedData(
                    FetchedChunk(wanted.offset, wanted.offset + count, size, content)
                )
            self.positions.partition_answered(wanted, said, self.now_ms)
        self.positions.fetch_done(one)
        self.must_check = True

    @precondition(lambda self: self.out)
    @rule()
    def lose(self):
        self.positions.fetch_done(self.out.pop())
        self.must_check = True

    @rule(most=st.none() | st.integers(1, 10))
    def take(self, most):
        self.end_loan(0)
        taken = self.positions.collect(most, yes)
        for one in taken:
            self.handed_out(one, one.to_offset)
        assert most is None or sum(t.to_offset - t.from_offset for t in taken) <= most
        if taken:
            self.delivered()

    @precondition(lambda self: self.positions.is_ready(yes))
    @rule(most=st.none() | st.integers(1, 10), read=st.integers(0, 9))
    def lend(self, most, read):
        self.end_loan(0)
        for one in self.positions.collect(most, yes, parts_max=1):
            upto = min(one.from_offset + read, one.to_offset)
            self.handed_out(one, upto)
            one.permit.delivered_offset = upto
            self.loan = one
            self.delivered()

    @rule(more=st.just(0) | st.integers(0, 9))
    def end_loan(self, more):
        loan, self.loan = self.loan, None
        if loan is not None:
            upto = loan.permit.delivered_offset
            if not loan.permit.is_revoked and not loan.permit.is_paused:
                self.due[loan.permit.partition] = upto = min(upto + more, loan.to_offset)
            loan.permit.delivered_offset = None
            self.positions.put_back(loan, upto)
            self.delivered()

    def handed_out(self, one, upto):
        partition = one.permit.partition
        assert partition in self.due
        assert partition not in self.paused
        assert one.chunk.content == "records"
        # No duplicates, and gaps only at offsets without records.
        assert one.from_offset >= self.due[partition]
        assert all(map(is_empty, range(self.due[partition], one.from_offset)))
        assert one.to_offset > one.from_offset
        self.due[partition] = upto

    @rule(partition=partitions, offset=st.integers(0, 60))
    def seek(self, partition, offset):
        if partition in self.due:
            self.positions.seek(partition, offset)
            self.due[partition] = offset
            self.must_check = True

    @rule(partition=partitions, paused=st.booleans())
    def pause(self, partition, paused):
        if partition in self.due:
            self.positions.pause([partition], paused=paused)
            (self.paused.add if paused else self.paused.discard)(partition)
            self.must_check = True

    @rule(data=st.data(), partition=partitions)
    def pause_full_buffer(self, data, partition):
        """Pause a partition that has records and is fetched again; others need its room."""
        self.fetch_and_answer(data)
        self.fetch()
        self.pause(partition, paused=True)
        self.fetch()

    @rule(partition=partitions)
    def disown(self, partition):
        self.positions.remove_partitions([partition])
        self.due.pop(partition, None)
        self.paused.discard(partition)
        self.must_check = True

    @rule(partition=partitions)
    def own(self, partition):
        if partition not in self.due:
            self.positions.add_partitions([partition])
            self.answer_lookups(self.positions.lookups(EVERYWHERE, self.now_ms), 5)
            assert self.due[partition] == 5

    @invariant()
    def bounded(self):
        asked_for = sum(one.bytes_max for one in self.out)
        assert (
            self.positions.buffered_bytes + asked_for <= self.buffer_bytes + 100
        )  # put back by a cursor

    @invariant()
    def connected(self):
        """The chunks cover all offsets from the position to the fetch offset."""
        for partition in self.positions.owned:
            state = self.positions.state(partition)
            at = state.position
            for one in state.chunks:
                assert one.from_offset == at
                at = one.to_offset
            assert at == state.fetch_offset
            assert state.buffered_bytes == sum(one.size for one in state.chunks)
            position = self.positions.position(partition)
            assert position >= self.due[partition]
            assert all(map(is_empty, range(self.due[partition], position))), "records are lost"


TestReading = Reading.TestCase
TestReading.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
