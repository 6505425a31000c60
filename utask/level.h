/* level.h: levels of units, from the smallest (DESIGN: unit levels). A construct at a level is run
 * by one unit of that level; the units of the levels below it share the work. */
#ifndef BRAID_LEVEL_H
#define BRAID_LEVEL_H

typedef enum Level {
    LEVEL_LANE,    /* CPU: SIMD lane; GPU: thread */
    LEVEL_CORE,    /* core; thread block */
    LEVEL_CLUSTER, /* absent; cluster of blocks */
    LEVEL_TEAM,    /* worker team; grid: units meet at barriers inside the kernel */
    LEVEL_HOST,    /* the host runs the construct */
    LEVEL_COUNT
} Level;

#endif
