/*
 * NVTX ranges for C and C++, as nsight-bridge reads them. Header only; needs NVTX 3:
 *
 *     c++ $(bridge --includes) program.cpp -ldl
 *
 * C and C++ (gcc, clang):
 *     BRIDGE_RANGE("name");                 a range to the end of the block
 *     BRIDGE_RANGE_CATEGORY("name", "io");  the same with a category
 *     BRIDGE_MARK("name");                  an instant
 *
 * C++, the macros of RAF's profiler:
 *     WITH_BASE_PROFILER(device, name, category, args, { code });
 *     WITH_BASE_PROFILER_LEVEL(level, device, name, category, args, { code });
 *     WITH_CUDA_PROFILER(device, stream, name, category, args, { code });
 *     RAF_TIMED("name", flush);             a range whose time is also added up in this process
 *     nsight_bridge::scope_timer::DumpReport(), Reset()
 *
 * Device and stream are not evaluated: the GPU's time comes from the kernels launched in the range.
 * Args, for example {"Count: " + std::to_string(n)}, are a mark within the range, joined by ";".
 * Ranges of a level above BRIDGE_LEVEL (environment, default 1) are not recorded. Without a tool a
 * range costs a few nanoseconds. With NVTX_DISABLE defined the ranges vanish.
 */
#ifndef NSIGHT_BRIDGE_H
#define NSIGHT_BRIDGE_H

#include <nvtx3/nvToolsExt.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BRIDGE_JOIN2(a, b) a##b
#define BRIDGE_JOIN(a, b) BRIDGE_JOIN2(a, b)
#define BRIDGE_UNUSED __attribute__((unused))

/* Ids of categories are those of the process: these are far above those of other libraries. */
#define BRIDGE_FIRST_CATEGORY 0x40000000u
#define BRIDGE_CATEGORIES 1024u

static inline uint32_t bridge_hash(const char* text) {
  uint32_t hash = 2166136261u;
  for (; *text; ++text) hash = (hash ^ (uint8_t)*text) * 16777619u;
  return hash;
}

/* Returns the id of a category, which depends on its name alone; names it for the tool each time it is new here. */
static inline uint32_t bridge_category(const char* name) {
  static uint32_t known[BRIDGE_CATEGORIES];
  if (!name || !*name) return 0;
  uint32_t hash = bridge_hash(name) | 1u, id = BRIDGE_FIRST_CATEGORY + (hash & 0x3FFFFFFFu);
  uint32_t* place = &known[hash % BRIDGE_CATEGORIES];
  if (__atomic_exchange_n(place, hash, __ATOMIC_RELAXED) != hash) nvtxNameCategoryA(id, name);
  return id;
}

static inline nvtxEventAttributes_t bridge_attributes(const char* name, const char* category) {
  nvtxEventAttributes_t event;
  memset(&event, 0, sizeof event);
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  event.category = bridge_category(category);
  return event;
}

static inline int bridge_push(const char* name, const char* category) {
  nvtxEventAttributes_t event = bridge_attributes(name, category);
  return nvtxRangePushEx(&event);
}

static inline void bridge_mark(const char* name, const char* category) {
  nvtxEventAttributes_t event = bridge_attributes(name, category);
  nvtxMarkEx(&event);
}

static inline void bridge_close(const int* level) {
  (void)level;
  nvtxRangePop();
}

static inline int bridge_is_recorded(int level) {
  static int most = -1;
  if (most < 0) {
    const char* text = getenv("BRIDGE_LEVEL");
    most = text && *text ? atoi(text) : 1;
  }
  return level <= most;
}

#define BRIDGE_RANGE_CATEGORY(name, category)                                                \
  int BRIDGE_JOIN(bridge_range_, __LINE__) BRIDGE_UNUSED __attribute__((cleanup(bridge_close))) = \
      bridge_push(name, category)
#define BRIDGE_RANGE(name) BRIDGE_RANGE_CATEGORY(name, "")
#define BRIDGE_MARK(name) bridge_mark(name, "")

#ifdef __cplusplus

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace nsight_bridge {

/* A range to the end of the block, if its level is recorded; an exception closes it, too. */
class Range {
 public:
  Range(int level, const std::string& name, const std::string& category,
        const std::vector<std::string>& args = {})
      : recorded_(bridge_is_recorded(level) != 0) {
    if (!recorded_) return;
    bridge_push(name.c_str(), category.c_str());
    std::string text;
    for (const std::string& arg : args) text += (text.empty() ? "" : ";") + arg;
    if (!text.empty()) bridge_mark(text.c_str(), "args");
  }
  ~Range() {
    if (recorded_) nvtxRangePop();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  bool recorded_;
};

namespace scope_timer {

struct Pool {
  std::mutex mutex;
  std::map<std::string, std::vector<double>> samples;  // seconds
};

inline Pool& pool() {
  static Pool only;
  return only;
}

/* Prints a line per name to stderr: total, maximum and average in s, number of samples. */
inline void DumpReport() {
  std::lock_guard<std::mutex> lock(pool().mutex);
  std::fprintf(stderr, "Scope Timer Report:\n");
  for (const auto& entry : pool().samples) {
    double total = 0, most = 0;
    for (double sample : entry.second) {
      total += sample;
      most = std::max(most, sample);
    }
    std::fprintf(stderr, "%s: %gs (max %gs, avg %gs) from %zu samples\n", entry.first.c_str(),
                 total, most, total / static_cast<double>(entry.second.size()), entry.second.size());
  }
}

inline void Reset() {
  std::lock_guard<std::mutex> lock(pool().mutex);
  pool().samples.clear();
}

/* A range to the end of the block, whose time is added to the samples of its name. */
class Timed {
 public:
  Timed(const std::string& name, bool flush)
      : name_(name), flush_(flush), range_(0, name, "timer"), start_(Clock::now()) {}
  ~Timed() {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    std::lock_guard<std::mutex> lock(pool().mutex);
    pool().samples[name_].push_back(seconds);
    if (flush_) std::fprintf(stderr, "Timed %s: %gs\n", name_.c_str(), seconds);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  std::string name_;
  bool flush_;
  Range range_;
  Clock::time_point start_;
};

}  // namespace scope_timer
}  // namespace nsight_bridge

/* The code comes last and may contain commas. */
#define WITH_BASE_PROFILER_LEVEL(LEVEL, DEVICE, NAME, CAT, ARGS, ...)                        \
  {                                                                                          \
    nsight_bridge::Range BRIDGE_JOIN(bridge_range_, __LINE__)(LEVEL, NAME, CAT, ARGS);       \
    __VA_ARGS__                                                                              \
  }
#define WITH_BASE_PROFILER(DEVICE, NAME, CAT, ARGS, ...) \
  WITH_BASE_PROFILER_LEVEL(1, DEVICE, NAME, CAT, ARGS, __VA_ARGS__)
#define WITH_CUDA_PROFILER_LEVEL(LEVEL, DEVICE, STREAM, NAME, CAT, ARGS, ...) \
  WITH_BASE_PROFILER_LEVEL(LEVEL, DEVICE, NAME, CAT, ARGS, __VA_ARGS__)
#define WITH_CUDA_PROFILER(DEVICE, STREAM, NAME, CAT, ARGS, ...) \
  WITH_BASE_PROFILER_LEVEL(1, DEVICE, NAME, CAT, ARGS, __VA_ARGS__)
#define RAF_TIMED(NAME, FLUSH) \
  nsight_bridge::scope_timer::Timed BRIDGE_JOIN(bridge_timed_, __LINE__)(NAME, FLUSH)

#endif /* __cplusplus */
#endif /* NSIGHT_BRIDGE_H */
