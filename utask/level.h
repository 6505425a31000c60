/* level.h: levels of units, smallest first. One unit of a level runs a construct at that level; the
 * lower units in it share the work. */
#ifndef BRAID_LEVEL_H
#define BRAID_LEVEL_H

typedef enum Level {
    LEVEL_LANE,    /* CPU: SIMD lane; GPU: thread */
    LEVEL_CORE,    /* core; thread block */
    LEVEL_CLUSTER, /* absent; cluster of blocks */
    LEVEL_TEAM,    /* worker team; grid: units synchronize at barriers inside the kernel */
    LEVEL_HOST,    /* the host runs the construct */
    LEVEL_COUNT
} Level;

#endif
