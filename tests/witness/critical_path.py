"""The critical path of a run and its length without an op, one rule of docs/critical.md after the other.

Attribution (which call, which op) is taken as given: another witness holds it to the truth. Threads of
autograd are not known here, but in programs of known costs (`critical.machine`).
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

DEVICE_KINDS = ("kernel", "memcpy", "memset", "graph")
JOINT = "ncclDevKernel_AllReduce"


def later(time: int, waits: list[tuple[int, int]]) -> int:
    """Return a time, or the end of the wait that it is in."""
    return next((end for start, end in waits if start < time < end), time)


class CriticalPath:
    """Points are keys; ``time``, ``before`` and ``label`` are by key. The run lasts from ``first`` to ``last``."""

    def __init__(self, attributed, first: int, last: int) -> None:
        self.attributed, self.first, self.last = attributed, first, last
        self.time: dict[tuple, int] = {}
        self.before: dict[tuple, list[tuple]] = {}
        self.label: dict[tuple, tuple[str, str]] = {}
        self.read()
        self.add_devices()
        self.add_threads()

    # -- what was recorded

    def read(self) -> None:
        capture, attribution = self.attributed.capture, self.attributed.attribution
        ops = [*self.attributed.ops, ""]
        calls = capture.launches
        self.calls = [
            {**row, "row": n, "end": max(row["start"], row["end"]), "stack": stack}
            for n, (row, stack) in enumerate(
                zip(calls.to_pandas().to_dict("records"), attribution.stack.tolist(), strict=True)
            )
        ]
        self.work = [
            {**row, "row": n, "launch": launch, "op": ops[op]}
            for n, (row, launch, op) in enumerate(
                zip(
                    capture.activities.to_pandas().to_dict("records"),
                    attribution.launch.tolist(),
                    self.attributed.activity_op.tolist(),
                    strict=True,
                )
            )
            if row["end"] >= row["start"] and row["end"] != 0
        ]
        self.work.sort(key=lambda a: (a["start"], a["end"], a["row"]))
        for rank, one in enumerate(self.work):
            one["rank"] = rank
            one["lane"] = (one["process"], one["device"], one["context"], one["stream"])
            one["issued"] = (
                one["start"] if one["launch"] < 0 else self.calls[one["launch"]]["start"]
            )
        self.waits = {}
        self.events = []
        for row in capture.waits.to_pandas().to_dict("records"):
            of = [
                c["row"]
                for c in self.calls
                if (c["process"], c["correlation"]) == (row["process"], row["correlation"])
            ]
            if row["kind"] == "event_record":
                self.events.append({**row, "at": self.calls[of[0]]["start"]})
            else:
                self.waits[of[0]] = row

    # -- devices

    def ended_before(self, one: dict, others: list[dict]) -> dict | None:
        """Return the one of others that ended last before an activity began."""
        able = [o for o in others if o["end"] <= one["start"] and o["rank"] < one["rank"]]
        return max(able, key=lambda o: (o["end"], o["rank"]), default=None)

    def add_devices(self) -> None:
        lanes, launches = defaultdict(list), defaultdict(list)
        for one in self.work:
            lanes[one["lane"]].append(one)
            launches[one["launch"]].append(one)
        self.lanes = lanes
        waits = self.stream_waits()
        for after, before in self.copies_in_turn():
            waits[after["row"]].append(before)
        for one in self.work:
            start, end = ("start", one["row"]), ("end", one["row"])
            before = [self.ended_before(one, lanes[one["lane"]])]
            if one["launch"] >= 0:
                before.append(self.ended_before(one, launches[one["launch"]]))
            ends = [("end", b["row"]) for b in [*before, *waits[one["row"]]] if b]
            self.time[start], self.time[end] = one["start"], one["end"]
            self.before[start], self.before[end] = ends, [start]
            name = one["op"] or one["name"]
            kind = "collective" if one["name"].startswith("nccl") else one["kind"]
            self.label[end] = (kind, name)
            latest = max(
                (self.time[e] if e in self.time else self.end(e) for e in ends), default=-1
            )
            launch = self.launch_point(one)
            if launch:
                self.before[start] = [*ends, launch]
            is_late = launch is not None and self.launched_at(one["launch"]) > latest
            self.label[start] = ("launch latency" if is_late else "device gap", name)
        for members in self.collectives():
            for one in members:
                self.before["end", one["row"]] = [("start", m["row"]) for m in members]

    def end(self, key: tuple) -> int:
        return next(one["end"] for one in self.work if one["row"] == key[1])

    def launched_at(self, call: int) -> int:
        called = self.calls[call]
        is_early = any(o["launch"] == call and o["start"] < called["end"] for o in self.work)
        return called["start"] if is_early else called["end"]

    def launch_point(self, one: dict) -> tuple | None:
        if one["launch"] < 0 or self.launched_at(one["launch"]) > one["start"]:
            return None
        called = self.calls[one["launch"]]
        is_early = any(
            o["launch"] == one["launch"] and o["start"] < called["end"] for o in self.work
        )
        return ("call", "start" if is_early else "end", one["launch"])

    def collectives(self) -> list[list[dict]]:
        """Return the collectives that several ranks ran at one time."""
        talk = [one for one in self.work if one["name"].startswith("nccl")]
        streams = defaultdict(list)
        for one in talk:
            streams[one["device"] if self.one_process else one["process"], one["lane"]].append(one)
        order = sorted(streams, key=lambda key: streams[key][0]["rank"])
        sequences, counts = defaultdict(list), defaultdict(int)
        for rank, lane in order:
            names = tuple(one["name"] for one in streams[rank, lane])
            sequences[names, counts[names, rank]].append(streams[rank, lane])
            counts[names, rank] += 1
        result = []
        for (names, _), several in sequences.items():
            for nth, name in enumerate(names):
                members = [stream[nth] for stream in several]
                meets = max(m["start"] for m in members) < min(m["end"] for m in members)
                if name.startswith(JOINT) and len(members) > 1 and meets:
                    result.append(members)
        return result

    @cached_property
    def one_process(self) -> bool:
        return len({one["process"] for one in self.work}) == 1

    def copies_in_turn(self) -> list[tuple[dict, dict]]:
        """Return copies of other streams that wait for the engine of their direction, which none overlaps."""
        engines = defaultdict(list)
        for one in self.work:
            if one["launch"] >= 0 and one["copy_kind"] in (1, 2):
                engines[one["device"], one["copy_kind"]].append(one)
        result = []
        for copies in engines.values():
            pairs = list(zip(copies[1:], copies, strict=False))
            apart = [(after, before) for after, before in pairs if before["end"] <= after["start"]]
            if len(apart) == len(pairs):
                result += [(a, b) for a, b in apart if a["lane"] != b["lane"]]
        return result

    # -- waits

    def last_issued(self, able: list[dict], before: int) -> dict | None:
        able = [o for o in able if o["issued"] < before]
        return max(able, key=lambda o: (o["end"], o["rank"]), default=None)

    def recorded(self, event: int, process: int, before: int) -> dict | None:
        able = [
            e
            for e in self.events
            if (e["event"], e["process"]) == (event, process) and e["at"] <= before and event >= 0
        ]
        return max(able, key=lambda e: e["at"], default=None)

    def on_stream(self, of: dict, stream: int) -> list[dict]:
        key = (of["process"], of["context"], stream)
        return [o for o in self.work if (o["process"], o["context"], o["stream"]) == key]

    def stream_waits(self) -> dict[int, list[dict]]:
        result = defaultdict(list)
        for call in self.calls:
            wait = self.waits.get(call["row"])
            if call["name"] != "cudaStreamWaitEvent" or not wait or wait["stream"] < 0:
                continue
            able = [o for o in self.on_stream(wait, wait["stream"]) if o["issued"] >= call["start"]]
            first = min(able, key=lambda o: (o["issued"], o["rank"]), default=None)
            if first is None:
                continue
            event = self.recorded(wait["event"], wait["process"], call["start"])
            if event:
                awaited = self.last_issued(self.on_stream(event, event["stream"]), event["at"])
            else:
                awaited = max(
                    (
                        o
                        for o in self.work
                        if o["process"] == first["process"]
                        and o["lane"] != first["lane"]
                        and o["issued"] < call["start"]
                        and o["end"] <= first["start"]
                    ),
                    key=lambda o: (o["end"], o["rank"]),
                    default=None,
                )
            if (
                awaited
                and awaited["lane"] != first["lane"]
                and awaited["end"] <= first["start"]
                and awaited["rank"] < first["rank"]
            ):
                result[first["row"]].append(awaited)
        return result

    def is_blocking(self, call: dict) -> bool:
        own = [o for o in self.work if o["launch"] == call["row"]]
        if call["name"] == "cudaMemcpy":
            return True
        late = [o for o in own if o["copy_kind"] == 2 and o["end"] <= call["end"]]
        return call["name"].startswith("cudaMemcpy") and bool(late)

    def released(self, call: dict) -> list[dict]:
        """Return what a call waits for."""
        wait = self.waits.get(call["row"], {})
        if self.is_blocking(call):
            own = [o for o in self.work if o["launch"] == call["row"]]
            able = [max(own, key=lambda o: (o["end"], o["rank"]))] if own else []
            if own:  # staged while the work before it ends
                first = min(own, key=lambda o: (self.lane_number(o), o["rank"]))
                before = self.ended_before(first, self.lanes[first["lane"]])
                if before and first["end"] > call["end"] and before["end"] > call["start"]:
                    able.append(before)
        elif call["name"] in ("cudaStreamSynchronize", "cudaEventSynchronize"):
            able = [self.of_stream(call, wait)]
        elif call["name"] == "cudaDeviceSynchronize":
            known = wait.get("context", -1) >= 0
            able = [
                self.last_issued(lane, call["start"])
                for lane in self.lanes.values()
                if lane[0]["process"] == call["process"]
                and (not known or lane[0]["context"] == wait["context"])
            ]
        else:
            able = []
        return [o for o in able if o and o["end"] < call["end"]]

    def of_stream(self, call: dict, wait: dict) -> dict | None:
        place, until = wait, call["start"]
        if call["name"] == "cudaEventSynchronize":
            place = self.recorded(wait.get("event", -1), call["process"], call["start"])
            until = place["at"] if place else until
        last = None
        is_known = bool(place) and place["stream"] >= 0
        if is_known:
            last = self.last_issued(self.on_stream(place, place["stream"]), until)
        if not is_known or (last and last["end"] >= call["end"]):
            able = [
                o
                for o in self.work
                if o["process"] == call["process"]
                and o["issued"] < call["start"]
                and o["end"] < call["end"]
            ]
            last = max(able, key=lambda o: (o["end"], o["rank"]), default=None)
        return last

    # -- threads

    def add_threads(self) -> None:
        nesting = self.attributed.attribution.nesting
        names = [self.attributed.ops[op] for op in self.attributed.node_op.tolist()]
        nodes = [
            (stack, start, end, n)
            for n, (stack, start, end) in enumerate(
                zip(
                    nesting.stack.tolist(),
                    nesting.start.tolist(),
                    nesting.end.tolist(),
                    strict=True,
                )
            )
        ]
        acts = {s for s, *_ in nodes}
        acts |= {c["stack"] for c in self.calls if self.acts(c)}
        acts = acts or {c["stack"] for c in self.calls}
        self.points_of: dict[int, list[tuple]] = {}
        for stack in sorted(acts):
            calls = [c for c in self.calls if c["stack"] == stack]
            self.points_of[stack] = self.add_thread(
                stack, calls, [n for n in nodes if n[0] == stack], names
            )
        self.add_begins()

    def add_begins(self) -> None:
        """Let the first thread of each process make the others, and that of the only one that issues work all processes."""
        of_process = defaultdict(list)
        for stack, points in self.points_of.items():
            if points:
                of_process[self.process_of(stack)].append((self.time[points[0]], stack))
        first = {process: min(threads)[1] for process, threads in of_process.items()}
        leaders = {
            one["process"] for one in self.work if one["launch"] >= 0 and not self.is_beside(one)
        }
        for process, threads in of_process.items():
            maker = first[process]
            self.let_begin(maker, [thread for thread in threads if thread[1] != maker])
            if len(leaders) == 1 and not leaders & {process} and leaders <= {*first}:
                self.let_begin(first[next(iter(leaders))], [min(threads)])

    def let_begin(self, maker: int, made: list[tuple[int, int]]) -> None:
        """Let threads, given with their first times, begin after what their maker did before."""
        for time, stack in made:
            able = [key for key in self.points_of[maker] if self.time[key] < time]
            if able:
                self.before[self.points_of[stack][0]].append(able[-1])
                self.label[self.points_of[stack][0]] = ("host code", "")

    def is_beside(self, one: dict) -> bool:
        """Return whether work is of a process that has at most half as many kinds on its GPU as another one."""
        kinds = defaultdict(set)
        for other in self.work:
            if other["device"] == one["device"]:
                kinds[other["process"]].add(other["name"])
        return 2 * len(kinds[one["process"]]) <= max(map(len, kinds.values()))

    def thread_of(self, stack: int) -> tuple[int, int]:
        """Return the process and the thread of a stack."""
        nesting = self.attributed.attribution.nesting
        own = next((c for c in self.calls if c["stack"] == stack), None)
        if own is None:
            row = nesting.range[nesting.stack.tolist().index(stack)]
            own = self.attributed.capture.ranges.to_pandas().iloc[row]
        return int(own["process"]), int(own["thread"])

    def process_of(self, stack: int) -> int:
        return self.thread_of(stack)[0]

    def lane_number(self, one: dict) -> int:
        return sorted(self.lanes).index(one["lane"])

    @cached_property
    def leads(self) -> set[tuple]:
        """The points that may end the run: of threads that act and of main threads, and of work that has calls."""
        acting = {c["stack"] for c in self.calls if self.acts(c)}
        main = set()
        for stack in self.points_of:
            process, thread = self.thread_of(stack)
            if thread & 0xFFFFFF == process >> 24 & 0xFFFFFF:
                main.add(stack)
        stacks = acting | main if acting else set(self.points_of)
        beside = {one["process"] for one in self.work if one["launch"] >= 0 and self.is_beside(one)}
        stacks = {stack for stack in stacks if self.process_of(stack) not in beside}
        result = {key for stack in stacks for key in self.points_of.get(stack, [])}
        called = {one["lane"] for one in self.work if one["launch"] >= 0}
        for one in self.work:
            if (one["lane"] in called or not called) and not self.is_beside(one):
                result |= {("start", one["row"]), ("end", one["row"])}
        return result or set(self.time)

    def acts(self, call: dict) -> bool:
        issues = any(o["launch"] == call["row"] for o in self.work)
        return issues or self.is_wait(call)

    def is_wait(self, call: dict) -> bool:
        return "Synchronize" in call["name"] or self.is_blocking(call)

    def system_calls(self, calls: list[dict], threads: set[int]) -> list[tuple[int, int]]:
        rows = [
            (row["start"], row["end"])
            for row in self.attributed.capture.system_calls.to_pandas().to_dict("records")
            if row["thread"] in threads
        ]
        outer: list[tuple[int, int]] = []
        for start, end in sorted(rows, key=lambda r: (r[0], -r[1])):
            if not any(s <= start < e for s, e in outer):
                outer.append((start, end))
        spans = []
        for start, end in outer:
            inside = [c for c in calls if c["start"] < start < c["end"]]
            begin = inside[0]["end"] if inside else start
            inside = [c for c in calls if c["start"] < end < c["end"]]
            stop = inside[0]["start"] if inside else end
            if stop > begin:
                spans.append((begin, stop))
        return spans

    def add_thread(
        self, stack: int, calls: list[dict], nodes: list[tuple], names: list[str]
    ) -> list[tuple]:
        threads = {c["thread"] for c in calls}
        ranges = self.attributed.attribution.nesting.range.tolist()
        threads |= {int(self.attributed.capture.ranges.thread[ranges[n[3]]]) for n in nodes}
        system = self.system_calls(calls, threads)
        points = []  # time, sort, number in the sort, key
        ordered = sorted(calls, key=lambda c: (c["start"], c["end"], c["row"]))
        for n, call in enumerate(ordered):
            points.append((call["start"], 0, 2 * n, ("call", "start", call["row"])))
            points.append((call["end"], 0, 2 * n + 1, ("call", "end", call["row"])))
        waits = [(c["start"], c["end"]) for c in calls if self.is_wait(c)]
        nodes = [
            (stack, later(start, waits), later(end, waits), n) for stack, start, end, n in nodes
        ]
        nodes = [node for node in nodes if node[2] > node[1]]
        for _, start, end, n in nodes:
            points.append((start, 1, n, ("node", "start", n)))
            points.append((end, 1, n, ("node", "end", n)))
        for n, (start, end) in enumerate(system):
            points.append((start, 2, n, ("system", "start", stack, n)))
            points.append((end, 2, n, ("system", "end", stack, n)))
        last, keys = None, []
        for time, *_, key in sorted(points):
            keys.append(key)
            self.time[key] = time
            self.before[key] = [last] if last else []
            if key[:2] == ("call", "end"):
                released = self.released(self.calls[key[2]])
                self.before[key] += [("end", one["row"]) for one in released]
            begin = self.time[last] if last else time
            self.label[key] = self.host_label(calls, nodes, system, names, begin)
            last = key
        return keys

    def host_label(self, calls, nodes, system, names, time: int) -> tuple[str, str]:
        call = next((c for c in calls if c["start"] <= time < c["end"]), None)
        inner = [n for n in nodes if n[1] <= time < n[2]]
        op = names[max(inner, key=lambda n: n[3])[3]] if inner else ""
        if call:
            return ("synchronization" if self.is_wait(call) else "API call", op or call["name"])
        in_system = any(start <= time < end for start, end in system)
        return ("OS call" if in_system else "host code", op)

    # -- the path, and the run without a label

    @cached_property
    def end_of_leads(self) -> int:
        return max(self.time[key] for key in self.leads if self.time[key] <= self.last)

    def delay(self, key: tuple) -> int:
        before = self.before[key]
        return self.time[key] - max(self.time[b] for b in before) if before else 0

    def path(self) -> dict[tuple[str, str], int] | None:
        """Return the time of each label on the path, None if two predecessors are equally late."""
        ends = [key for key in self.leads if self.time[key] == self.end_of_leads]
        result: dict[tuple[str, str], int] = defaultdict(int)
        if len(ends) != 1:
            return None
        key = ends[0]
        while (before := self.before[key]) and self.time[key] > self.first:
            latest = max(self.time[b] for b in before)
            result[self.label[key]] += self.time[key] - max(latest, self.first)
            able = {b for b in before if self.time[b] == latest}
            if len(able) > 1:
                return None
            key = able.pop()
        result["unknown", ""] += max(0, self.time[key] - self.first)
        result["unknown", ""] += self.last - max(self.end_of_leads, self.first)
        return {label: time for label, time in result.items() if time}

    def without(self, label: tuple[str, str]) -> int:
        """Return the length of the run if what has the label took no time."""
        moved: dict[tuple, int] = {}

        def at(key: tuple) -> int:
            if key not in moved:
                before = self.before[key]
                delay = self.delay(key)
                if self.label[key] == label:  # what lies before the run is kept
                    delay -= max(0, min(delay, self.time[key] - self.first))
                moved[key] = max(at(b) for b in before) + delay if before else self.time[key]
            return moved[key]

        end = max(at(key) for key in self.leads if self.time[key] <= self.last)
        return self.last - self.first - (self.end_of_leads - end)
