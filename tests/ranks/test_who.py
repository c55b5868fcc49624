"""Who a rank is: what is said of it in which order, what secrets are not kept, what is told twice."""

import json
from dataclasses import replace

import pytest
from command import assert_misused, done
from command import bridge as command
from fleet.split import split
from made_reports import PUSH_POP, process, thread

import bridge
from bridge.analyze.run.ranks import Ranks, members
from bridge.analyze.run.ranks.members import duplicate_rank_warnings
from bridge.annotate.recording.lines import RANKS
from bridge.importers.capture import Facts, rank_in_name
from bridge.importers.nsys.ranks import RANK_VARIABLES
from bridge.join import options as ranked
from ranks.run import Rank, begun, run

SECRETS = ("API_TOKEN=planted-9137", "AWS_SECRET=planted-5551", "HOSTNAME=planted-71")


def ranks(paths, **options):
    return bridge.load(*paths, **options).ranks


def told(paths, **options):
    """Give (rank, by what it is known) of the only process of each report."""
    return [(one.rank, one.known_by) for one in ranks(paths, **options).members]


def test_launchers_variables_are_those_of_recordings():
    assert dict(RANK_VARIABLES) == RANKS


@pytest.mark.slow
def test_what_is_said_best_counts(folder):
    every = {"file": "run_rank4.sqlite", "name": "worker rank 5", "environment": ["RANK=3"]}
    [path], _ = run(folder, [Rank(0, **every)])
    named = path.rename(folder / "node2-run_rank4.sqlite")
    assert told([named], rank_from=r"node(\d)") == [(2, "--rank-from")]
    assert told([named]) == [(3, "environment")]
    for left, best in (
        ("environment", (5, "process name")),
        ("name", (4, "file name")),
        ("file", (0, "place")),
    ):
        every.pop(left)
        [path], _ = run(folder, [Rank(0, **every)])
        assert told([path]) == [best]
        path.unlink()


def test_recordings_know_better_than_the_environment(folder):
    [path], _ = run(folder, [Rank(0, environment=["RANK=3"])])
    joined = bridge.load(path)
    facts = replace(
        joined.capture.facts[0], metadata={**joined.capture.facts[0].metadata, "rank": 9}
    )
    report = replace(joined.capture, facts=(facts,))
    assert [(m.rank, m.known_by) for m in Ranks.of(report).members] == [(9, "recording")]
    report = replace(report, facts=(replace(facts, product="PyTorch profiler"),))
    assert [(m.rank, m.known_by) for m in Ranks.of(report).members] == [(9, "profiler")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entries", "own", "found"),
    [
        (["RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=8"], [], {"rank": 3, "local_rank": 1, "world_size": 8}),
        (["SLURM_PROCID=5", "RANK=3"], [], {"rank": 3}),
        (["SLURM_PROCID=5", "RANK=x"], [], {"rank": 5}),
        (["RANK=3"], ['RANK="4"'], {"rank": 4}),  # the program's own environment
        ([], ["PMI_RANK=0"], {"rank": 0}),
        (["SLURM_PROCID=5", "PMIX_RANK=4"], [], {"rank": 4}),
        (["MV2_COMM_WORLD_RANK=2", "MV2_COMM_WORLD_SIZE=8"], [], {"rank": 2, "world_size": 8}),
        (["XRANK=3", "RANK", "RANK=", "RANK=-1", "RANK=1e3", f"RANK={'9' * 40}"], [], None),
    ],
)  # fmt: skip
def test_of_the_environment_places_alone_are_kept(folder, entries, own, found):
    one = Rank(0, environment=[*SECRETS, *entries], own=[*own, 'TOKEN="planted-3"'], host="node7")
    [path], _ = run(folder, [one])
    joined = bridge.load(path)
    assert joined.capture.facts[0].metadata.get("environment") == found
    assert joined.capture.facts[0].metadata["host"] == "node7"
    assert "planted" not in repr(joined.capture.facts)
    assert "planted" not in done("report", path, "--by", "rank", "--format", "json")
    done("trace", path, "-o", "t.json")
    assert "planted" not in (folder / "t.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_launchers_environment_is_no_ranks(corpus, folder):
    """Of two processes in one report the environment is the launcher's; their GPUs tell them apart."""
    joined = bridge.load(corpus / "nsys" / "pytorch-2gpu-before.sqlite")
    facts = replace(joined.capture.facts[0], metadata={"environment": {"rank": 1}})
    found = Ranks.of(replace(joined.capture, facts=(facts,)))
    assert [(m.rank, m.known_by, m.gpus, m.pid) for m in found.members] == [
        (0, "place", (0,), 144), (1, "place", (1,), 145),
    ]  # fmt: skip
    assert [m.rank for m in Ranks.of(joined.capture, place=3).members] == [6, 7]


@pytest.mark.slow
def test_processes_that_share_a_gpu_are_not_told_apart(corpus):
    found = bridge.load(corpus / "nsys" / "two-processes.sqlite").ranks
    assert [(m.rank, m.known_by) for m in found.members if m.works] == [(-1, "")] * 2
    assert found.names == ["process 1679", "process 1680"]


@pytest.mark.slow
def test_a_report_says_the_same_whatever_is_beside_it(folder):
    paths, _ = run(folder, [Rank(n, pid=100 + n) for n in range(3)])
    assert [rank for rank, _ in told(paths)] == [0, 1, 2]
    assert [told([path], place=n)[0] for n, path in enumerate(paths)] == told(paths)


def test_nccl_says_the_rank_in_its_largest_communicator():
    def init(rank, size):
        return json.dumps({"NCCL communicator ID": 7, "No. of ranks": size, "Rank": rank})

    assert members.rank_of_communicators([init(0, 2), init(5, 8), init(1, 4)]) == 5
    assert members.rank_of_communicators([init(1, 8), init(2, 8)]) == -1
    assert members.rank_of_communicators(["{", '{"Rank": "x"}', '["Rank"]', ""]) == -1


@pytest.mark.slow
def test_nccls_ranges_say_the_rank_of_their_process(folder):
    made = begun(Rank(0, file="run_rank4.sqlite"))
    made.kernel("gemm", 10, 100, 20, 50)
    for number, name in enumerate(("ncclCommInitRank", "ncclAllReduce")):
        details = json.dumps({"No. of ranks": 8 + number, "Rank": 6 + number})
        made.annotation(PUSH_POP, 1, 5, text=name, json=details, thread=thread(100))
    assert told([made.written(folder / "run_rank4.sqlite")]) == [(6, "NCCL")]


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank3", 3), ("my_Rank-12", 12), ("RANK 007.x", 7), ("a.rank_4", 4), ("rank123456789", 123456789),
     ("frank3", -1), ("rank", -1), ("rank--3", -1), ("rank1234567890", -1), ("", -1)],
)  # fmt: skip
def test_names_say_ranks(name, rank):
    assert rank_in_name(name) == rank


@pytest.mark.parametrize("rank", [True, -1, 10**9, 3.0, "3", None])
def test_a_rank_is_a_number_from_0(rank):
    assert members.ranks_of_file(Facts(metadata={"rank": rank}), "") == []


def test_the_path_says_the_host_before_the_report_does():
    recorded = {"host": "recorded"}
    assert members.host_of(Facts(metadata=recorded)) == "recorded"
    assert members.host_of(Facts(metadata={**recorded, "rank_from": {"host": "path"}})) == "path"
    assert members.host_of(Facts(metadata={"host": 3})) == ""


def two_processes(folder, *, kernels, environment=("RANK=5",)):
    """Write a report in which a second process does something, too."""
    made = begun(Rank(0, environment=environment))
    for pid in (100, 200):
        made.annotation(PUSH_POP, 1, 90, text="load", thread=thread(pid))
    for n in range(kernels):
        made.kernel("gemm", 10, 100, 20 + n, 21 + n)
    return made.written(folder / "r.sqlite")


@pytest.mark.slow
def test_a_process_beside_the_one_with_a_gpu_is_of_its_rank(folder):
    found = ranks([two_processes(folder, kernels=3)])
    assert [(m.pid, m.rank, m.works) for m in found.members] == [(100, 5, True), (200, 5, False)]
    assert found.workers == [0]
    (folder / "r.sqlite").unlink()
    found = ranks([two_processes(folder, kernels=3, environment=())])
    assert [(m.rank, m.known_by) for m in found.members] == [(0, "place")] * 2


@pytest.mark.slow
def test_where_none_used_a_gpu_each_that_did_anything_counts(folder):
    found = ranks([two_processes(folder, kernels=0)])
    assert [(m.pid, m.rank, m.works) for m in found.members] == [(100, -1, True), (200, -1, True)]


def recorded(path, **ranks_of_pids):
    """Give the ranks of a report whose processes have recorded these ranks: (pid, rank, by what it is known, works)."""
    capture = bridge.load(path).capture
    of_processes = {pid.removeprefix("p"): {"rank": rank} for pid, rank in ranks_of_pids.items()}
    metadata = {**capture.facts[0].metadata, "process_ranks": of_processes}
    found = Ranks.of(replace(capture, facts=(replace(capture.facts[0], metadata=metadata),)))
    return [(m.pid, m.rank, m.known_by, m.works) for m in found.members]


@pytest.mark.slow
def test_each_process_has_the_rank_that_it_recorded(folder):
    path = two_processes(folder, kernels=0)
    by = "recording"
    assert recorded(path, p100=1, p200=0) == [(100, 1, by, True), (200, 0, by, True)]
    assert recorded(path, p200=3) == [(100, -1, "", True), (200, 3, by, True)]
    # A loader's process has the rank of the process that started it.
    assert recorded(path, p100=2, p200=2) == [(100, 2, by, True), (200, 2, by, False)]
    path.unlink()
    path = two_processes(folder, kernels=3)
    assert recorded(path, p100=1, p200=0) == [(100, 1, by, True), (200, 0, by, True)]
    assert recorded(path, p100=2, p200=2) == [(100, 2, by, True), (200, 2, by, False)]
    assert recorded(path, p100=2) == [(100, 2, by, True), (200, 2, by, False)]
    assert recorded(path, p200=4) == [(100, 0, "place", True), (200, 4, by, True)]


@pytest.mark.slow
def test_who_has_no_rank_comes_last_and_is_not_twice_one(folder):
    paths, _ = run(folder / "a", [Rank(0, environment=["RANK=1"])])
    found = ranks([two_processes(folder, kernels=0), *paths])
    assert [rank for rank, *_ in found.homes] == [1, -1, -1]
    assert found.warnings == []


def test_of_several_ranks_that_are_twice_the_first_is_shown():
    homes = [(f"{n}.sqlite", (rank, n, "place")) for n, rank in enumerate((7, 2, 7, 2, 3, 2))]
    [line] = duplicate_rank_warnings(homes)
    said_of = "rank 2 is both process 1 of 1.sqlite, by place and process 3 of 3.sqlite, by place"
    assert line.startswith(f"{said_of}, and so for 1 more: --rank-from")


@pytest.mark.parametrize(
    ("expression", "path", "found"),
    [
        (r"r(\d+)", "a/r12.sqlite", {"rank": 12}),
        (r"(node\d)/r(?P<rank>\d+)", "node1/r12.sqlite", {"rank": 12}),
        (r"(?P<host>node\d)/r(\d+)", "node1/r12.sqlite", {"rank": 12, "host": "node1"}),
        (r"(?P<host>node\d)", "node1/r12.sqlite", {"host": "node1"}),
        (r"(\w+)\.sqlite", "x.sqlite", {}),
        (r"q(\d+)", "a/r12.sqlite", {}),
    ],
)
def test_paths_tell_ranks(expression, path, found):
    assert ranked.rank_and_host(ranked.compile_rank_pattern(expression), path) == found


def test_the_path_counts_and_is_not_shown(folder):
    paths, _ = run(folder, [Rank(n, pid=100 + n, file=f"secret/r{n + 3}/a.sqlite") for n in (0, 1)])
    option = ("--rank-from", r"/r(\d+)/")
    rows = json.loads(done("report", *paths, *option, "--by", "rank", "--format", "json"))["ranks"]
    assert [(row["rank"], row["known_by"]) for row in rows] == [
        (3, "--rank-from"),
        (4, "--rank-from"),
    ]
    assert "secret" not in json.dumps(rows)


@pytest.mark.parametrize("name", ["report", "trace"])
def test_a_wrong_expression_is_a_usage_error(folder, name):
    [path], _ = run(folder, [Rank(0)])
    more = ["-o", "t.json"] if name == "trace" else []
    for expression, why in (
        ("(", "no regular expression"),
        ("r", "no group"),
        (r"q(\d)", "finds no rank"),
    ):
        assert_misused(command(name, path, "--rank-from", expression, *more), why)


@pytest.mark.slow
def test_two_of_one_rank_are_said(folder):
    paths, _ = run(folder, [Rank(n, pid=100 + n, environment=["RANK=3"]) for n in (0, 1)])
    for words in (
        ["report", "--by", "rank"],
        ["report", "--by", "op,rank"],
        ["report", "--by", "skew"],
    ):
        [line] = command(words[0], *paths, *words[1:]).stderr.splitlines()
        assert line.startswith(
            "warning: rank 3 is both process 100 of report-0.sqlite, by environment and"
        )
        assert "process 101 of report-1.sqlite" in line
    assert command("report", *paths).stderr == ""


@pytest.mark.slow
def test_a_run_of_the_store_knows_its_ranks(folder):
    paths, _ = run(
        folder, [Rank(n, pid=100 + n, environment=[f"RANK={n + 5}"], host=f"h{n}") for n in (0, 1)]
    )
    done("import", "-q", *paths)
    rows = json.loads(done("report", "--by", "rank", "--format", "json"))["ranks"]
    assert [(row["rank"], row["host"]) for row in rows] == [(5, "h0"), (6, "h1")]


@pytest.mark.slow
def test_an_import_keeps_what_paths_said(folder):
    paths, _ = run(folder, [Rank(n, pid=100 + n, file=f"r{n + 3}/a.sqlite") for n in (0, 1)])
    done("import", "-q", *paths)
    done("import", "-q", *paths, "--rank-from", r"/r(\d+)/")
    ranks_of = [
        [
            row["rank"]
            for row in json.loads(
                done("report", "--by", "rank", "--run", str(n), "--format", "json")
            )["ranks"]
        ]
        for n in (1, 2)
    ]
    assert ranks_of == [[0, 1], [3, 4]]
    assert_misused(command("import", "-q", *paths, "--rank-from", r"q(\d)"), "finds no rank")


@pytest.mark.slow
def test_a_report_split_by_process_has_the_same_ranks(corpus, folder):
    whole = corpus / "nsys" / "pytorch-2gpu-before.sqlite"
    one, several = bridge.load(whole), bridge.load(*split(whole, folder))
    for by in ("rank", "rank,op", "rank,kernel"):
        a, b = (joined.by(by) for joined in (one, several))
        assert a.to_csv() == b.to_csv()
    columns = ["op", "ranks", "total_ns", "slowest", "slowest_ns", "skew", "lost_ns"]
    assert one.by("skew")[columns].equals(several.by("skew")[columns])


@pytest.mark.slow
def test_files_processes_and_ranks_called_alike_are_told_apart(folder):
    """As containers have them: each with process 100, its report called as all are."""
    ranks_of = [Rank(n, file=f"n{n}/r.sqlite", environment=["RANK=3"]) for n in (0, 1)]
    paths, _ = run(folder, ranks_of)
    assert bridge.load(*paths).ranks.names == ["rank 3 in r.sqlite (1)", "rank 3 in r.sqlite (2)"]
    [line] = command("report", *paths, "--by", "rank").stderr.splitlines()
    assert "process 100 of r.sqlite (1), by" in line
    assert "process 100 of r.sqlite (2), by" in line


@pytest.mark.slow
@pytest.mark.parametrize("name", ["python", "rank 3"])
def test_processes_of_one_number_in_one_report_are_told_apart(folder, name):
    """As those of several virtual machines are, whose bits are above the number's."""
    made = begun(Rank(0, pid=7, name=name))
    twin = 7 | 1 << 24
    made.tables["processes"].append({"process": process(twin), "name": name})
    for pid in (7, twin):
        made.kernel("gemm", 10, pid, 20, 30)
    path = made.written(folder / "r.sqlite")
    assert len(set(ranks([path]).names)) == 2
    [other], _ = run(folder / "b", [Rank(0, pid=7)])
    assert len(set(ranks([path, other]).names)) == 3
