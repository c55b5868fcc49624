#include <nsight_bridge.h>
int main(void) { BRIDGE_RANGE("outer"); for (int i = 0; i < 2; ++i) { BRIDGE_RANGE_CATEGORY("inner", "io"); BRIDGE_MARK("here"); } return 0; }
