-- The tables of bridge.db, schema version 18. Made by python -m tests.docs contracts.

CREATE TABLE "activities" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "start" INTEGER,
   "end" INTEGER,
   "kind" INTEGER,
   "process" INTEGER,
   "device" INTEGER,
   "context" INTEGER,
   "stream" INTEGER,
   "correlation" INTEGER,
   "name" INTEGER,
   "bytes" INTEGER,
   "copy_kind" INTEGER,
   "source_kind" INTEGER,
   "target_kind" INTEGER,
   "migration_cause" INTEGER,
   "grid_x" INTEGER,
   "grid_y" INTEGER,
   "grid_z" INTEGER,
   "block_x" INTEGER,
   "block_y" INTEGER,
   "block_z" INTEGER,
   "registers" INTEGER,
   "shared_static" INTEGER,
   "shared_dynamic" INTEGER,
   "green_context" INTEGER,
   "graph" INTEGER,
   "graph_node" INTEGER,
   "report" INTEGER,
   "launch" INTEGER,
   "range" INTEGER,
   "op" INTEGER,
   "reason" INTEGER
);

CREATE TABLE "aggregates" (
   "run" INTEGER,
   "report" INTEGER,
   "table" TEXT,
   "data" BLOB,
   PRIMARY KEY ("run", "report", "table")
);

CREATE TABLE "context_switches" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "time" INTEGER,
   "cpu" INTEGER,
   "thread" INTEGER,
   "process" INTEGER,
   "on_cpu" INTEGER,
   "report" INTEGER
);

CREATE TABLE "cuda_streams" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "process" INTEGER,
   "context" INTEGER,
   "stream" INTEGER,
   "kind" INTEGER,
   "report" INTEGER
);

CREATE TABLE "devices" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "process" INTEGER,
   "device" INTEGER,
   "gpu" INTEGER,
   "name" INTEGER,
   "memory_bytes" INTEGER,
   "memory_bandwidth" INTEGER,
   "clock_hz" INTEGER,
   "l2_bytes" INTEGER,
   "compute_major" INTEGER,
   "compute_minor" INTEGER,
   "sm_count" INTEGER,
   "warp_size" INTEGER,
   "warps_per_sm" INTEGER,
   "blocks_per_sm" INTEGER,
   "threads_per_block" INTEGER,
   "registers_per_sm" INTEGER,
   "registers_per_block" INTEGER,
   "shared_per_sm" INTEGER,
   "shared_per_block" INTEGER,
   "shared_per_block_optin" INTEGER,
   "report" INTEGER
);

CREATE TABLE "diagnostics" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "time" INTEGER,
   "process" INTEGER,
   "source" INTEGER,
   "severity" INTEGER,
   "name" INTEGER,
   "report" INTEGER
);

CREATE TABLE "extents" (
   "run" INTEGER,
   "first" INTEGER,
   "last" INTEGER,
   "table" TEXT, "checksums" TEXT,
   PRIMARY KEY ("run", "table")
);

CREATE TABLE "gpu_metrics" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "time" INTEGER,
   "gpu" INTEGER,
   "metric" INTEGER,
   "value" INTEGER,
   "report" INTEGER
);

CREATE TABLE "graph_nodes" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "time" INTEGER,
   "thread" INTEGER,
   "process" INTEGER,
   "node" INTEGER,
   "original" INTEGER,
   "report" INTEGER
);

CREATE TABLE "kernel_summary" (
   "run" INTEGER,
   "kernel" TEXT,
   "count" INTEGER,
   "total_ns" INTEGER,
   "mean_ns" REAL,
   "min_ns" INTEGER,
   "max_ns" INTEGER,
   "median_ns" REAL,
   "share" REAL
);

CREATE TABLE "launches" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "start" INTEGER,
   "end" INTEGER,
   "thread" INTEGER,
   "process" INTEGER,
   "correlation" INTEGER,
   "name" INTEGER,
   "result" INTEGER,
   "report" INTEGER
);

CREATE TABLE "marks" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "time" INTEGER,
   "thread" INTEGER,
   "process" INTEGER,
   "domain" INTEGER,
   "domain_name" INTEGER,
   "name" INTEGER,
   "category" INTEGER,
   "payload" INTEGER,
   "json" INTEGER,
   "report" INTEGER
);

CREATE TABLE "measured" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "activity" INTEGER,
   "kernel" INTEGER,
   "match" INTEGER
);

CREATE TABLE "memcpy_summary" (
   "run" INTEGER,
   "operation" TEXT,
   "count" INTEGER,
   "total_ns" INTEGER,
   "mean_ns" REAL,
   "min_ns" INTEGER,
   "max_ns" INTEGER,
   "bytes" INTEGER,
   "gb_per_s" REAL
);

CREATE TABLE "memory" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "time" INTEGER,
   "thread" INTEGER,
   "process" INTEGER,
   "device" INTEGER,
   "context" INTEGER,
   "stream" INTEGER,
   "correlation" INTEGER,
   "kind" INTEGER,
   "operation" INTEGER,
   "address" INTEGER,
   "bytes" INTEGER,
   "pool" INTEGER,
   "reserved" INTEGER,
   "allocated" INTEGER,
   "name" INTEGER,
   "report" INTEGER
);

CREATE TABLE "metric_rules" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "kernel" INTEGER,
   "section" INTEGER,
   "rule" INTEGER,
   "kind" INTEGER,
   "text" INTEGER,
   "scope" INTEGER,
   "speedup" REAL
);

CREATE TABLE "metrics" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "kernel" INTEGER,
   "metric" INTEGER,
   "unit" INTEGER,
   "value" REAL,
   "text" INTEGER
);

CREATE TABLE "names" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "text" TEXT,
   "full_name" TEXT,
   "mangled" TEXT
, "readable" TEXT);

CREATE TABLE "nccl_calls" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "start" INTEGER,
   "end" INTEGER,
   "thread" INTEGER,
   "process" INTEGER,
   "name" INTEGER,
   "bytes" INTEGER,
   "communicator" INTEGER,
   "ranks" INTEGER,
   "rank" INTEGER,
   "peer" INTEGER,
   "root" INTEGER,
   "reduction" INTEGER,
   "report" INTEGER
);

CREATE TABLE "op_kernel_summary" (
   "run" INTEGER,
   "op" TEXT,
   "kernel" TEXT,
   "count" INTEGER,
   "total_ns" INTEGER,
   "mean_ns" REAL,
   "min_ns" INTEGER,
   "max_ns" INTEGER
);

CREATE TABLE "op_summary" (
   "run" INTEGER,
   "op" TEXT,
   "calls" INTEGER,
   "kernels" INTEGER,
   "memcpys" INTEGER,
   "memsets" INTEGER,
   "graphs" INTEGER,
   "gpu_self_ns" INTEGER,
   "gpu_total_ns" INTEGER,
   "gpu_busy_ns" INTEGER,
   "cpu_self_ns" INTEGER,
   "cpu_total_ns" INTEGER,
   "gpu_mean_ns" REAL,
   "gpu_p50_ns" REAL,
   "gpu_p95_ns" REAL,
   "gpu_max_ns" INTEGER,
   "share" REAL
);

CREATE TABLE "overhead" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "start" INTEGER,
   "end" INTEGER,
   "thread" INTEGER,
   "process" INTEGER,
   "correlation" INTEGER,
   "name" INTEGER,
   "report" INTEGER
);

CREATE TABLE "processes" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "process" INTEGER,
   "name" INTEGER,
   "report" INTEGER
);

CREATE TABLE "ranges" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "start" INTEGER,
   "end" INTEGER,
   "thread" INTEGER,
   "process" INTEGER,
   "domain" INTEGER,
   "domain_name" INTEGER,
   "name" INTEGER,
   "kind" INTEGER,
   "category" INTEGER,
   "color" INTEGER,
   "payload" INTEGER,
   "json" INTEGER,
   "open" INTEGER,
   "text" TEXT,
   "report" INTEGER,
   "parent" INTEGER,
   "op" INTEGER
);

CREATE TABLE "reports" (
   "run" INTEGER,
   "report" INTEGER,
   "span_start" INTEGER,
   "span_end" INTEGER,
   "source" TEXT,
   "product" TEXT,
   "schema" TEXT,
   "warnings" TEXT, "epoch_ns" INTEGER, "metadata" TEXT, "beside" TEXT, "aggregates" TEXT, "session_ns" INTEGER, "system_spans" TEXT,
   PRIMARY KEY ("run", "report")
);

CREATE TABLE "runs" (
   "id" INTEGER PRIMARY KEY,
   "activities" INTEGER,
   "gpu_ns" INTEGER,
   "attributed_ns" INTEGER,
   "ops" INTEGER,
   "created" TEXT,
   "identity" TEXT,
   "source" TEXT,
   "version" TEXT,
   "rules" TEXT
, "name" TEXT, "ncu" TEXT, "quality" INTEGER, "tables" TEXT, "totals" TEXT, "worth" TEXT, "summary" TEXT, "checksum" INTEGER, "label" TEXT);

CREATE TABLE "system_calls" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "start" INTEGER,
   "end" INTEGER,
   "thread" INTEGER,
   "process" INTEGER,
   "name" INTEGER,
   "report" INTEGER
);

CREATE TABLE "threads" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "thread" INTEGER,
   "process" INTEGER,
   "name" INTEGER,
   "report" INTEGER
);

CREATE TABLE "waits" (
   "id" INTEGER PRIMARY KEY,
   "run" INTEGER,
   "start" INTEGER,
   "end" INTEGER,
   "kind" INTEGER,
   "process" INTEGER,
   "device" INTEGER,
   "context" INTEGER,
   "stream" INTEGER,
   "correlation" INTEGER,
   "event" INTEGER,
   "report" INTEGER
);

CREATE VIEW "calls" AS SELECT r.run, r.id, n.text AS name, o.text AS op, r.start, r.end, r.end - r.start AS duration_ns,
 r.thread, r.process, coalesce(r.text, n.text) AS text
FROM ranges r JOIN names n ON n.id = r.name JOIN names o ON o.id = r.op;

CREATE VIEW "kernel_metrics" AS SELECT d.run, d.activity, coalesce(k.readable, k.text) AS kernel, o.text AS op, a.end - a.start AS duration_ns,
 n.text AS metric, m.value, t.text, u.text AS unit, h.text AS match
FROM measured d JOIN activities a ON a.id = d.activity JOIN names k ON k.id = a.name
JOIN metrics m ON m.run = d.run AND m.kernel = d.kernel JOIN names n ON n.id = m.metric
LEFT JOIN names o ON o.id = a.op LEFT JOIN names u ON u.id = m.unit
LEFT JOIN names t ON t.id = m.text LEFT JOIN names h ON h.id = d.match;

CREATE VIEW "kernel_rules" AS SELECT d.run, d.activity, coalesce(k.readable, k.text) AS kernel, o.text AS op, a.end - a.start AS duration_ns,
 n.text AS rule, i.text AS kind, t.text, s.text AS scope, m.speedup, h.text AS match
FROM measured d JOIN activities a ON a.id = d.activity JOIN names k ON k.id = a.name
JOIN metric_rules m ON m.run = d.run AND m.kernel = d.kernel JOIN names n ON n.id = m.rule
LEFT JOIN names o ON o.id = a.op LEFT JOIN names i ON i.id = m.kind
LEFT JOIN names t ON t.id = m.text LEFT JOIN names s ON s.id = m.scope
LEFT JOIN names h ON h.id = d.match;

CREATE VIEW "kernels" AS SELECT a.run, a.id, coalesce(k.readable, k.text) AS kernel, k.text AS short_name,
 coalesce(k.full_name, k.text) AS full_name, o.text AS op, r.text AS reason,
 (WITH RECURSIVE up(range, path) AS (SELECT a.range, NULL UNION ALL
   SELECT g.parent, n.text || coalesce('/' || up.path, '') FROM up JOIN ranges g ON g.id = up.range
   JOIN names n ON n.id = g.op) SELECT path FROM up WHERE range IS NULL) AS path,
 a.start, a.end, a.end - a.start AS duration_ns, a.process, a.device, a.stream, a.correlation,
 a.grid_x, a.grid_y, a.grid_z, a.block_x, a.block_y, a.block_z
FROM activities a JOIN names k ON k.id = a.name
JOIN names i ON i.id = a.kind AND i.text = 'kernel'
LEFT JOIN names o ON o.id = a.op LEFT JOIN names r ON r.id = a.reason;
