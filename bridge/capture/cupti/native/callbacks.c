/* The callbacks that CUPTI calls, without Python: CUPTI may hold a lock of its own while it calls them, and a thread of
   the program that holds Python's lock may wait for CUPTI's. So nothing here waits for Python.

   Buffers go round: `give` puts an empty one into the free list, CUPTI takes it (`request`), fills it and hands it back
   (`complete`), `take` gets it from there. Events of resources are kept until `take_events`. build.sh makes the libraries
   that the wheel holds. */
#include <stdint.h>
#include <stddef.h>
#include <unistd.h>
#include <sys/syscall.h>

#define MOST_BUFFERS 256
#define MOST_EVENTS 65536
#define MOST_CONTEXTS 256
#define DOMAIN_RESOURCE 3
enum { CONTEXT_CREATED = 1, CONTEXT_DESTROYED = 2, MODULE_UNLOADED = 7, NODE_CREATED = 13, NODE_CLONED = 20 };
#define NO_ORIGINAL (-1)

typedef struct { void *address; uint64_t valid; } Buffer;
typedef struct { int64_t time, thread, node, original; } Event;
typedef struct { void *context, *resource; void *descriptor; } ResourceData; /* CUpti_ResourceData */
typedef struct { void *graph, *original_graph, *node, *original_node; } GraphData; /* the head of CUpti_GraphData */

const char bridge_source[] = "source:" SOURCE; /* the SHA-256 of this file, by which a test knows that a library is of it */

static char lock;
static void *free_buffers[MOST_BUFFERS]; static int free_count;
static Buffer completed[MOST_BUFFERS]; static int completed_count;
static Event events[MOST_EVENTS]; static int event_count;
static void *contexts[MOST_CONTEXTS]; static int context_count;
static uint64_t buffer_bytes, dropped_records, lost_events, calls, unloaded_at;
static int (*get_dropped)(void *context, uint32_t stream, size_t *count);
static int (*get_node_id)(void *node, uint64_t *id);
static int (*get_timestamp)(uint64_t *time);

static void enter(void) { while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) {} }
static void leave(void) { __atomic_clear(&lock, __ATOMIC_RELEASE); }

/* Set the size of buffers and CUPTI's functions; CUPTI may still have buffers of a capture before. */
void bridge_begin(uint64_t bytes, void *dropped, void *node_id, void *timestamp) {
  enter(); buffer_bytes = bytes; get_dropped = dropped; get_node_id = node_id; get_timestamp = timestamp; dropped_records = lost_events = 0; leave(); }

/* Forget what belongs to the parent of a forked process; buffers that the parent had completed are free here. */
void bridge_forked(void) { leave(); /* a thread of the parent may have held it */
  while (completed_count && free_count < MOST_BUFFERS) free_buffers[free_count++] = completed[--completed_count].address;
  completed_count = event_count = context_count = 0; dropped_records = lost_events = 0; }

int bridge_give(void *buffer) { int done; enter(); if ((done = free_count < MOST_BUFFERS)) free_buffers[free_count++] = buffer; leave(); return done; }

/* Move the completed buffers to ``to``, the earliest first, and return how many there were. */
int bridge_take(Buffer *to) { enter(); int count = completed_count; for (int i = 0; i < count; i++) to[i] = completed[i]; completed_count = 0; leave(); return count; }

/* Move at most ``most`` events of nodes to ``to``, and return how many. */
int bridge_take_events(Event *to, int most) { enter(); int count = event_count < most ? event_count : most;
  for (int i = 0; i < count; i++) to[i] = events[i];
  for (int i = count; i < event_count; i++) events[i - count] = events[i];
  event_count -= count; leave(); return count; }

uint64_t bridge_take_dropped(void) { enter(); uint64_t count = dropped_records; dropped_records = 0; leave(); return count; }
uint64_t bridge_lost_events(void) { return lost_events; }

/* How often CUPTI has called for a buffer, or with one. */
uint64_t bridge_calls(void) { return __atomic_load_n(&calls, __ATOMIC_ACQUIRE); }
/* CUPTI's time of the last unloading of a module, 0 without one. */
uint64_t bridge_unloaded_at(void) { return __atomic_load_n(&unloaded_at, __ATOMIC_ACQUIRE); }

/* Copy the contexts that were created and not destroyed to ``to``, and return how many. */
int bridge_contexts(void **to) { enter(); int count = context_count; for (int i = 0; i < count; i++) to[i] = contexts[i]; leave(); return count; }

void bridge_request(uint8_t **buffer, size_t *size, size_t *most_records) { enter(); calls++;
  *buffer = free_count ? free_buffers[--free_count] : 0; *size = *buffer ? buffer_bytes : 0; *most_records = 0; leave(); }

void bridge_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) { size_t dropped = 0;
  if (get_dropped) get_dropped(context, stream, &dropped);
  enter(); dropped_records += dropped; calls++;
  if (buffer && completed_count < MOST_BUFFERS) { completed[completed_count].address = buffer; completed[completed_count++].valid = valid; }
  leave(); }

static void note_context(void *context, int created) { enter(); int i = 0;
  while (i < context_count && contexts[i] != context) i++;
  if (created && i == context_count && i < MOST_CONTEXTS) contexts[context_count++] = context;
  if (!created && i < context_count) contexts[i] = contexts[--context_count];
  leave(); }

static void note_node(void *node, void *original) { uint64_t time = 0, id = 0, of = (uint64_t)NO_ORIGINAL;
  get_timestamp(&time); get_node_id(node, &id); if (original) get_node_id(original, &of);
  int64_t thread = syscall(SYS_gettid);
  enter(); if (event_count < MOST_EVENTS) { Event made = {(int64_t)time, thread, (int64_t)id, (int64_t)of}; events[event_count++] = made; } else lost_events++; leave(); }

void bridge_event(void *unused, int domain, uint32_t event, void *data) { ResourceData *resource = data;
  if (domain != DOMAIN_RESOURCE) return;
  if (event == CONTEXT_CREATED || event == CONTEXT_DESTROYED) { note_context(resource->context, event == CONTEXT_CREATED); return; }
  if (event == MODULE_UNLOADED) { uint64_t time = 0; get_timestamp(&time); __atomic_store_n(&unloaded_at, time, __ATOMIC_RELEASE); return; }
  GraphData *graph = resource->descriptor;
  if (event == NODE_CREATED) note_node(graph->node, 0);
  if (event == NODE_CLONED) note_node(graph->node, graph->original_node); }
