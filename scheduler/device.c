/* device.c: the devices, one row each. The numbers of a row are those of a common one of its kind.
 */
#include "scheduler/device.h"

static const Device devices[] = {
    {.name = "cpu",
     .level = {[LEVEL_LANE] = {"lane", 1, 0, 32 << 10, 200},
               [LEVEL_CORE] = {"core", 16, 0, 1 << 20, 80},
               [LEVEL_TEAM] = {"team", 0, 250, 16 << 20, 25},
               [LEVEL_HOST] = {"host", 1, 20000, 0, 0}},
     .gflops = 100,
     .dram_gbps = 12,
     .element_ns = 0.06,
     .function_ns = 0.8,
     .scalar_ns = 1,
     .group_ns = 12,
     .mixes = true},
};

const Device *device_find(const char *name) {
    for (size_t i = 0; i < COUNT(devices); i++)
        if (strcmp(devices[i].name, name) == 0) return &devices[i];
    return NULL;
}
