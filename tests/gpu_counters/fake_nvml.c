/* A stand-in for NVML with two GPUs; the second has no energy counter. */
static unsigned long long energy = 1000;
static int first, second;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { *device = index ? &second : &first; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *value) {
  if (device != &first) return 3;
  *value = energy += 5;
  return 0;
}
