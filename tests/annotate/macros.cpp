#include <nsight_bridge.h>
#include <stdexcept>
#include <thread>
struct Device { int id; } device{0};
static void work(int n) { RAF_TIMED("work", false); std::this_thread::sleep_for(std::chrono::milliseconds(n)); }
int main() {
  {
    BRIDGE_RANGE("step");
    BRIDGE_RANGE_CATEGORY("load", "io");
    BRIDGE_MARK("loaded");
    WITH_BASE_PROFILER(device, "conv2d", "MemoryRequest", {"Count: " + std::to_string(3)}, {
      int a = 1, b = 2;
      work(a + b);
    });
    WITH_CUDA_PROFILER(device, stream, std::string("gemm"), "Stream 1", {}, { work(1); });
    WITH_BASE_PROFILER_LEVEL(2, device, "InvokeJit", "VMInstruction", {}, { work(1); });
  }
  try { WITH_BASE_PROFILER(device, "throws", "MemoryRequest", {}, { throw std::runtime_error("x"); }); } catch (...) {}
  RAF_TIMED("flushed", true);
  nsight_bridge::scope_timer::DumpReport();
  nsight_bridge::scope_timer::Reset();
}
